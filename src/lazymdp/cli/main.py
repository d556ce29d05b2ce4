"""The command line, `lazymdp COMMAND`: the table of commands, and the handling of errors.

Exit codes: 0 done, 1 a claim does not hold or a run was set aside, 2 an error such as bad input, 130 interrupted.
Results go to standard output; progress and errors go to standard error, so the output of `--json` can be piped.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tyro
from rich.markup import escape

import lazymdp as lz
from lazymdp._arguments import safe_str
from lazymdp._progress import ERR
from lazymdp.cli.evaluate import evaluate
from lazymdp.cli.exact import explore, list_names, path, solve
from lazymdp.cli.explain import explain, fidelity, record, strip, video
from lazymdp.cli.output import INTERRUPTED, show_line
from lazymdp.cli.reproduce import reproduce
from lazymdp.cli.sweep import sweep
from lazymdp.cli.train import resume, train
from lazymdp.learn.deep.trust import Untrusted

COMMANDS: dict[str, Callable[..., int]] = {
    "solve": solve,
    "path": path,
    "explore": explore,
    "reproduce": reproduce,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "explain": explain,
    "record": record,
    "strip": strip,
    "video": video,
    "fidelity": fidelity,
    "sweep": sweep,
    "list": list_names,
}
_DESCRIPTION = """When is it worth taking control? Exact answers for models, trained agents for all other problems.

Every command has its own --help. --version prints the version; --debug shows the traceback of an error."""


for command in COMMANDS.values():  # tyro keeps the line breaks of an argument's description
    command.__doc__ = re.sub(r"\n {8,}", " ", inspect.cleandoc(command.__doc__ or ""))


@dataclass(frozen=True)
class Flags:
    """The options that every command has."""

    debug: bool = False
    version: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. An error is printed as one line, or raised if `--debug` is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    no_pairs = tyro.conf.FlagCreatePairsOff
    flags, rest = tyro.cli(Flags, args=given, return_unknown_args=True, add_help=False, config=(no_pairs,))
    if flags.version:
        show_line(f"lazymdp {lz.__version__}")
        return 0
    try:
        with _importing_from_current_folder():
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                prog="lazymdp",
                description=_DESCRIPTION,
                args=rest or ["--help"],
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.CascadeSubcommandArgs,
                        no_pairs),
            )  # fmt: skip
    except KeyboardInterrupt:
        ERR.print("Interrupted.", style="bold")
        return INTERRUPTED
    except Untrusted as error:
        return _failed(f"{error.reason} If you trust whoever made it, run: lazymdp {shlex.join([*rest, '--trust'])}")
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, OverflowError) as error:
        if flags.debug:
            raise
        return _failed(safe_str(error))


def _failed(message: str) -> int:
    """Print an error as one line and return the exit code."""
    ERR.print(f"[bold red]Error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)
    return 2


@contextmanager
def _importing_from_current_folder() -> Iterator[None]:
    """Let `module:Id-v0` and `module:function` find modules in the current folder; installed ones take precedence."""
    before = sys.path
    sys.path = [*before, os.getcwd()]
    try:
        yield
    finally:
        sys.path = before


def entry_point() -> None:
    """Run the installed command `lazymdp`."""
    code = main()
    if code == INTERRUPTED:  # leave at once: native code may still be running in other threads
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
