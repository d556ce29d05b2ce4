"""The command line, `lazymdp COMMAND`: it parses arguments, calls one function and prints the result."""
