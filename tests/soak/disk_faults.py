"""Many faults of disk and machine: damaged files and killed processes. pytest does not collect this file.

`corrupt` damages files of runs and of a saved model, one at a time, and reads them in this process. Damage is
*detected* if reading raises an error that names the file, *harmless* if everything that is read is identical, and
*silent* otherwise. `kill` kills processes (SIGKILL) at random times and lets them go on. A kill is *harmless* if the
result is identical to that of an undisturbed process, and *lost* otherwise.

    python tests/soak/disk_faults.py --corruptions 1000 --kills 60

Each function returns its counts. Some changed bytes are harmless: dates in zip files, spaces in JSON files, files that
are written for the user and that nothing reads (`last.json`, `best.json`, `.lock`, TensorBoard events), and rows of
`metrics.csv` after the last checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

import lazymdp as lz
from lazymdp.cli.main import main
from lazymdp.learn.deep.run_folder import RunFolder

OPTIONS = {
    "pqn": ["--algorithm", "pqn", "--n-envs", "16", "--rollout", "8", "--hidden", "16", "16"],
    "dqn": [
        "--algorithm",
        "dqn",
        "--n-envs",
        "4",
        "--rollout",
        "32",
        "--buffer-size",
        "800",
        "--learning-starts",
        "200",
        "--hidden",
        "16",
        "--update-interval",
        "4",
        "--eta",
        "0.1",
    ],
}
STEPS = {"pqn": 200_000, "dqn": 40_960}
OUTCOMES = ("detected", "harmless", "silent", "lost")


def corrupt(n: int, seed: int = 0) -> dict[str, int]:
    """Damages a random file of a run or of a saved model `n` times, and restores it; returns the counts by outcome."""
    rng, counts = np.random.default_rng(seed), Counter(dict.fromkeys(OUTCOMES, 0))
    with tempfile.TemporaryDirectory() as name, _quiet():
        readers = _subjects(Path(name))
        files = [(reader, path) for reader, root in readers for path in sorted(_files(root))]
        whole = {reader: reader() for reader, _ in readers}
        for _ in range(n):
            reader, path = files[rng.integers(len(files))]
            before = path.read_bytes()
            path.write_bytes(_damaged(before, rng))
            outcome = _outcome(reader, whole[reader], path)
            if outcome == "silent":
                print(f"silent: {path}", file=sys.stderr)
            counts[outcome] += 1
            path.write_bytes(before)
        for reader, _ in readers:
            assert _same(reader(), whole[reader])
    return dict(counts)


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Returns a file with a flipped bit, another byte, a block of zeros, or without its end."""
    kind, changed = rng.integers(4), bytearray(content)
    if not content:
        return b"\x00"
    place = int(rng.integers(len(content)))
    if kind == 0:
        return content[:place]
    if kind == 1:
        changed[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        changed[place] = (changed[place] + int(rng.integers(1, 256))) % 256
    else:
        end = min(len(content), place + int(rng.integers(1, 512)))
        changed[place:end] = bytes(end - place)
    return bytes(changed)


def _subjects(folder: Path):
    """Makes two runs and a model; returns, for each, a function that reads all of it and the path of its files."""
    runs = []
    for algorithm in OPTIONS:
        run, more = folder / algorithm, []
        if algorithm == "dqn":  # with copies of another run
            more = ["--default-policy", str(folder / "pqn"), "--tensorboard"]
        command = ["train", "FrozenLake-v1", *OPTIONS[algorithm], "--steps", "12800", "-o", str(run), "--episodes", "1"]
        assert main([*command, "--checkpoint-seconds", "0.05", *more]) == 0
        runs.append((functools.partial(_read_run, run), run))
    copied, config = folder / "zip", RunFolder(folder / "pqn").config()  # with a copy of a file
    (folder / "model.zip").write_bytes(np.random.default_rng(0).bytes(2_000))
    RunFolder(copied).create(replace(config, default_policy=str(folder / "model.zip")))
    runs.append((functools.partial(_read_copies, copied), copied))
    world = lz.envs.KeyDoorTreasure()
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    (folder / "model").mkdir()
    mdp.save(folder / "model" / "model.npz")
    runs.append((functools.partial(_read_model, folder / "model" / "model.npz"), folder / "model"))
    return runs


def _files(root: Path):
    return (path for path in root.rglob("*") if path.is_file())


def _read_run(folder: Path):
    """Everything that `resume` and `evaluate` read from a run."""
    run = RunFolder(folder)
    config = run.config()
    run.check_copies()
    found = {"config": config, "metrics": None}
    for which in ("last", "best"):
        checkpoint, parts = run.resume(which)
        found |= {f"{which} {name}": array for name, array in checkpoint.arrays.items()}
        found |= {which: (checkpoint.step, checkpoint.quality)}
        for part in parts:
            found |= {f"{part.first} {part.last} {name}": array for name, array in part.arrays.items()}
    size = run._about("last")["metrics"][0]
    found["metrics"] = (folder / "metrics.csv").read_bytes()[:size]
    default = folder / "default"
    if default.exists():
        copy = RunFolder(default)
        found |= {"default": copy.config()} | {f"default {name}": x for name, x in copy.read().arrays.items()}
    return found


def _read_copies(folder: Path):
    run = RunFolder(folder)
    config = run.config()
    run.check_copies()
    return {"config": config, "model": Path(config.default_policy).read_bytes()}


def _read_model(path: Path):
    mdp = lz.MDP.load(path)
    names = ("rewards", "start", "absorbing", "gamma", "state_names", "action_names")
    parts = {"data": mdp.transitions.data, "indices": mdp.transitions.indices, "indptr": mdp.transitions.indptr}
    return parts | {name: getattr(mdp, name) for name in names}


def _same(found, wanted) -> bool:
    if found.keys() != wanted.keys():
        return False
    for name, one in found.items():
        other = wanted[name]
        if isinstance(one, np.ndarray):
            if one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes():
                return False
        elif one != other:
            return False
    return True


def _outcome(reader, whole, path: Path) -> str:
    try:
        found = reader()
    except (ValueError, OSError) as error:
        return "detected" if path.name in str(error) else "silent"
    return "harmless" if _same(found, whole) else "silent"


@contextlib.contextmanager
def _quiet():
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# -- kills -----------------------------------------------------------------------------------------------------------


def kill(n: int, seed: int = 0) -> dict[str, int]:
    """Kills a process at a random time `n` times, and lets it go on; returns the counts by outcome.

    In turn: `lazymdp train` with both algorithms, `lazymdp reproduce`, `MDP.save`. Two processes run at a time. The
    times of the kills are drawn from how long each takes undisturbed, which is measured with two at a time as well.
    """
    counts = Counter(dict.fromkeys(OUTCOMES, 0))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as threads:
        folder = Path(name)
        kinds = (
            functools.partial(_Training, algorithm="pqn"),
            functools.partial(_Training, algorithm="dqn"),
            _Reproduction,
            _Saving,
        )
        subjects = list(threads.map(lambda kind: kind(folder), kinds))

        def killed(number: int) -> str:
            subject, path = subjects[number % len(subjects)], folder / f"killed-{number}"
            outcome = subject.killed(path, np.random.default_rng([seed, number]))
            if outcome == "lost":
                print(f"lost: {subject.name}, kill {number}", file=sys.stderr)
            shutil.rmtree(path, ignore_errors=True)
            return outcome

        counts.update(threads.map(killed, range(n)))
    return dict(counts)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # A killed process may leave half a compiled program behind: it has a cache of its own.
    env = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()


class _Training:
    """`lazymdp train`, then `lazymdp resume` until it is complete."""

    def __init__(self, folder: Path, algorithm: str) -> None:
        self.name = f"train ({algorithm})"
        self._command = [sys.executable, "-m", "lazymdp", "train", "FrozenLake-v1", *OPTIONS[algorithm], "--steps"]
        self._command += [str(STEPS[algorithm]), "--checkpoint-seconds", "0.1", "--episodes", "1", "-o"]
        began = time.monotonic()
        assert _start([*self._command, str(folder / algorithm)]).wait() == 0
        self._seconds, self._whole = time.monotonic() - began, self._state(folder / algorithm)

    def _state(self, path: Path):
        run = RunFolder(path)
        last, best, parts = run.read(), run.read("best"), run.replay()
        rows = {}
        for part in parts:  # a part begins with the last row of the part before
            for key, array in part.arrays.items():
                rows[f"replay {key}"] = (
                    np.concatenate([rows[f"replay {key}"][:-1], array]) if parts[0] != part else array
                )
        steps = [line.split(",")[0] for line in (path / "metrics.csv").read_text().splitlines()[1:]]
        assert list(map(int, steps)) == sorted(map(int, steps)) and int(steps[-1]) == last.step
        arrays = {f"last {key}": one for key, one in last.arrays.items()}
        arrays |= {} if best is None else {f"best {key}": one for key, one in best.arrays.items()}
        return arrays | {key: one[-200:] for key, one in rows.items()} | {"step": last.step}

    def killed(self, path: Path, rng: np.random.Generator) -> str:
        _kill_after(_start([*self._command, str(path)]), rng.uniform(0.2, 1.0) * self._seconds)
        for _ in range(2):  # kill it once more while it goes on, then let it finish
            if (path / "config.json").exists():
                resume = [sys.executable, "-m", "lazymdp", "resume", str(path), "--episodes", "1"]
                process = _start([*resume, "--checkpoint-seconds", "0.1"])
            else:
                process = _start([*self._command, str(path)])
            if _ == 0:
                _kill_after(process, rng.uniform(0.2, 1.0) * self._seconds)
            elif process.wait() != 0:
                return "lost"
        with contextlib.suppress(ValueError, OSError, AssertionError):
            return "harmless" if _same(self._state(path), self._whole) else "lost"
        return "lost"


class _Reproduction:
    """`lazymdp reproduce`, repeated."""

    name = "reproduce"
    _CHOSEN = ("fig3", "fig11")

    def __init__(self, folder: Path) -> None:
        began = time.monotonic()
        for one in self._CHOSEN:
            assert _start(self._command(one, folder / "reproduced")).wait() == 0
        self._seconds, self._whole = time.monotonic() - began, self._state(folder / "reproduced")

    def _command(self, one: str, path: Path) -> list[str]:
        return [sys.executable, "-m", "lazymdp", "reproduce", one, "-o", str(path)]

    def _state(self, path: Path):
        made = (file for file in _files(path) if file.suffix in (".csv", ".svg", ".png"))
        return {str(file.relative_to(path)): file.read_bytes() for file in made if not file.name.startswith(".")}

    def killed(self, path: Path, rng: np.random.Generator) -> str:
        for one in self._CHOSEN:
            _kill_after(_start(self._command(one, path)), rng.uniform(0.1, 1.0) * self._seconds / len(self._CHOSEN))
            if _start(self._command(one, path)).wait() != 0:
                return "lost"
        left = [file for file in _files(path) if ".part" in file.name]
        return "harmless" if not left and _same(self._state(path), self._whole) else "lost"


class _Saving:
    """`MDP.save` over another model: afterward the file holds one of the two."""

    name = "MDP.save"
    _CODE = """
import sys, lazymdp as lz
old, new = (lz.MDP.load(path) for path in sys.argv[2:])
print("ready", flush=True)
while True:
    old.save(sys.argv[1])
    new.save(sys.argv[1])
"""

    def __init__(self, folder: Path) -> None:
        n = 20_000
        rng = np.random.default_rng(0)
        transitions = np.eye(200)[rng.integers(200, size=(200, n // 200))]
        self._models = []
        for number in range(2):
            path = folder / f"saved-{number}.npz"
            lz.MDP(transitions, rng.normal(size=(200, n // 200)), 0.9).save(path)
            self._models.append((path, _read_model(path)))

    def killed(self, path: Path, rng: np.random.Generator) -> str:
        path.mkdir()
        command = [sys.executable, "-c", self._CODE, str(path / "m.npz"), *(str(one) for one, _ in self._models)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0.0, 0.5))
            process.kill()
        try:
            found = _read_model(path / "m.npz")
        except FileNotFoundError:  # it was killed before the first file was complete
            found = self._models[0][1]
        except ValueError:
            return "lost"
        lz.MDP.load(self._models[0][0]).save(path / "m.npz")
        left = [file for file in path.iterdir() if file.name != "m.npz"]
        return "harmless" if not left and any(_same(found, whole) for _, whole in self._models) else "lost"


def _table(corruptions: int, kills: int, seed: int) -> int:
    found = {}
    for name, function, n in (("corruptions", corrupt, corruptions), ("kills", kill, kills)):
        began = time.monotonic()
        found[name] = function(n, seed)
        shown = ", ".join(f"{found[name][outcome]} {outcome}" for outcome in OUTCOMES)
        print(f"{n} {name}: {shown} ({time.monotonic() - began:.0f} s)", flush=True)
    return int(any(counts["silent"] or counts["lost"] for counts in found.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corruptions", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.exit(_table(given.corruptions, given.kills, given.seed))
