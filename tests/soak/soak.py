"""The soak test (`make soak`): many models, damaged files and killed processes; writes ``docs/benchmarks/soak.md``.

    python tests/soak/soak.py --models 10000 --corruptions 1000 --kills 60

It exits with 1 if an answer is wrong, damage goes unnoticed or work is lost. The page is written in any case.
"""

import argparse
import datetime
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # rational.py

import disk_faults
import exact_models
import named_tests

PAGE = named_tests.PAGE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--corruptions", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        answers = other.submit(exact_models.check_models, given.models, given.seed)
        rows, faults = [], Counter()
        for name, function, n in (
            ("damaged files", disk_faults.corrupt, given.corruptions),
            ("kills", disk_faults.kill, given.kills),
        ):
            found, seconds = timed(function, n, given.seed)
            faults += Counter(found)
            counted = (f"{found[outcome]:,}" for outcome in disk_faults.OUTCOMES)
            rows.append([name, f"{n:,}", *counted, f"{seconds:.0f}"])
            print(*rows[-1], flush=True)
        counts, problems = answers.result()
    text = "\n".join([exact_models.table(counts), *problems[:50]])
    print(text, flush=True)
    _write(given.seed, text, rows)
    return int(bool(problems or faults["silent"] or faults["lost"]))


def timed(function, *arguments):
    """Returns what a function returns and the seconds that it took."""
    began = time.monotonic()
    return function(*arguments), time.monotonic() - began


def _write(seed: int, text: str, rows: list[list[str]]) -> None:
    """Writes the page; another process adds the names of the tests, because pytest wants to import everything first."""
    header = ["faults", "number", *disk_faults.OUTCOMES, "seconds"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    PAGE.write_text(f"""# The soak test

Written by `make soak` on {datetime.date.today()} with seed {seed}: {_cpu()}, {os.cpu_count()} cores, Python \
{platform.python_version()}.

## Exact answers

Random models of {len(exact_models.KINDS)} kinds, chosen for what has gone wrong before: near ties, long lifetimes,
rows that do not quite sum to 1, tiny and huge rewards, default policies that are already optimal. Every answer is
compared with one in rational arithmetic. An answer is *wrong* if it is outside its own error bound, or claims a proof
that does not hold. A question is *refused* with an error that says why, and refused *needlessly* if expected
lifetimes are below a million steps.

```text
{text}
```

## Runs and models on disk

One file of a run or of a saved model is damaged at a time (bytes flipped, the end cut off). Damage is *detected* if
reading raises an error that names the file, *harmless* if everything that is read is identical, and *silent* otherwise.
Processes (`train` with both algorithms, `reproduce`, `MDP.save`) are killed with SIGKILL at random times and started
again. A kill is *harmless* if the result is the same as without it, and otherwise something is *lost*.

{table}
""")
    subprocess.run([sys.executable, named_tests.__file__], check=True)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
