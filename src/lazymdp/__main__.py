"""`python -m lazymdp`: the command line."""

from lazymdp.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
