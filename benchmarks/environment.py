"""Re-executes the script that imports this module in the benchmarks' own virtual environment.

On first use, this creates ``benchmarks/.venv`` and installs the project (editable) and every line of
``requirements.txt`` with pip. It installs again whenever ``requirements.txt`` or ``pyproject.toml``
changes. It then restarts the script with that environment's Python.

Import only the standard library here, because this code runs before anything is installed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = HERE / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = HERE / "requirements.txt"
STAMP = VENV / "installed.json"


def enter() -> None:
    """Installs missing packages and re-executes the running script in the environment."""
    if multiprocessing.parent_process() is not None:
        return  # a worker process; its parent has already done this
    if os.environ.get("LAZYMDP_BENCHMARKS") == "here":
        return  # a machine without a network, where everything is already installed
    if not _is_current():
        _install()
    if Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(PYTHON, [str(PYTHON), *sys.orig_argv[1:]])


def failures() -> dict[str, str]:
    """Returns the packages that pip could not install, with pip's error message."""
    return json.loads(STAMP.read_text())["failures"]


def _wanted() -> dict[str, str]:
    files = (REQUIREMENTS, ROOT / "pyproject.toml")
    return {file.name: file.read_text() for file in files}


def _is_current() -> bool:
    return STAMP.exists() and json.loads(STAMP.read_text())["wanted"] == _wanted()


def _install() -> None:
    if not PYTHON.exists():
        print(f"creating {VENV}", file=sys.stderr)
        venv.create(VENV, with_pip=True)
    lines = [line.strip() for line in REQUIREMENTS.read_text().splitlines()]
    failed = {}
    for line in lines:
        if line and not line.startswith("#"):
            print(f"installing {line}", file=sys.stderr)
            reason = _pip(line)
            if reason:
                failed[line.partition("==")[0]] = reason
    print("installing the project, editable", file=sys.stderr)
    reason = _pip("--editable", str(ROOT))
    if reason:
        raise SystemExit(f"pip could not install the project: {reason}")
    STAMP.write_text(json.dumps({"wanted": _wanted(), "failures": failed}, indent=2))


def _pip(*arguments: str) -> str | None:
    """Runs pip install. Returns None on success, otherwise pip's last error message."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    complaints = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (complaints or done.stderr.splitlines() or ["no message"])[-1].removeprefix("ERROR: ")


enter()
