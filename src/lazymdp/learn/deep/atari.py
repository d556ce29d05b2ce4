"""Atari games, emulated in processes of their own by ale-py's vector environment.

The protocol is Dopamine's: sticky actions (0.25), four frames to a step of which the last two are joined by their
maximum, 84 x 84 gray pixels, no no-op starts, no fire at the start, lives do not end episodes, 100,000 frames at most,
the smallest set of actions. Four of these images make an observation; those before an episode began are black. Rewards
are as the game gives them.

An emulator can hang. They therefore run in processes of their own, and those that do not answer in time are replaced:
their episodes are lost, and the run goes on. A run that is picked up again begins new episodes too, as the
emulators cannot be put down.

`python -m lazymdp.learn.deep.atari` is the emulators' side of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp import _cores
from lazymdp.learn.deep.host_env import Seen

SIDE = 84
FRAMES_PER_STEP = 4
MAX_FRAMES = 100_000
PER_PROCESS = 256
"""Emulators in a process, at most."""


class AtariHost:
    """Copies of an Atari game.

    Args:
        env: Id of the game, `ALE/Breakout-v5`.
        n_envs: Number of copies.
        n_groups: Groups they form, if they can be of equal size: one steps while the other waits for its actions.
        patience: Seconds after which emulators that do not answer are replaced; their start may take ten times that.
    """

    shape: tuple[int, ...] = (SIDE, SIDE, 4)
    dtype: type = np.uint8
    stack, noop, repeats = 4, 0, False
    space: spaces.Space[Any] = spaces.Box(0, 255, (SIDE, SIDE, 4), np.uint8)
    max_steps: int | None = MAX_FRAMES // FRAMES_PER_STEP

    def __init__(self, env: str, n_envs: int, n_groups: int = 2, patience: float = 30.0) -> None:
        self.name = env
        self.game, self.n_actions = _game(env)
        self.patience = patience
        size = n_envs // n_groups if n_envs % n_groups == 0 else n_envs
        self.groups = tuple(slice(begin, begin + size) for begin in range(0, n_envs, size))
        self._begun = 0  # how often emulators were started: each time from another seed
        self._groups: list[_Group] = []

    def like(self, n_envs: int) -> AtariHost:
        """Another host of the same game."""
        return AtariHost(self.name, n_envs, patience=self.patience)

    def start(self, seed: int) -> None:
        """Begins an episode everywhere."""
        self.close()
        self._seed = seed
        sizes = [group.stop - group.start for group in self.groups]
        self._groups = [_Group(self.game, size, self._new_seed(place)) for place, size in enumerate(sizes)]

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Has the group step."""
        self._groups[group].memory["action"][:] = actions
        for process in self._groups[group].processes:
            process.ask()

    def receive(self, group: int) -> Seen:
        """Waits for the group; replaces those of its emulators that take too long or have ended."""
        asked = self._groups[group]
        for place, process in enumerate(asked.processes):
            if not process.answers(self.patience):
                self._begun += 1
                lost = process.part.stop - process.part.start
                warnings.warn(
                    f"emulators of {self.game} {process.trouble} and are replaced; {lost} episodes are lost "
                    f"({self._begun} so far).",  # a warning of the same words would be shown once only
                    stacklevel=2,
                )
                if not asked.replace(place, self._new_seed(group)).answers(self.patience):
                    raise RuntimeError(
                        f"the emulators of {self.game} give no answer: see what they said on standard error."
                    )
        return Seen(*(asked.memory[name] for name in Seen._fields))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """How often emulators were started: they themselves cannot be put down."""
        return {"begun": np.array(self._begun)}

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Begins new episodes."""
        self._begun = int(arrays["begun"]) + 1
        self.start(seed)

    def close(self) -> None:
        """Ends the processes."""
        for group in self._groups:
            group.close()
        self._groups = []

    def _new_seed(self, group: int) -> int:
        words = np.random.SeedSequence(self._seed, spawn_key=(group, self._begun)).generate_state(1)
        return int(words[0] >> 2)  # consecutive seeds from here, each below 2**31


class _Group:
    """Emulators that step together: their processes, and the memory shared with these."""

    def __init__(self, game: str, count: int, seed: int) -> None:
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        # A file without a name: nothing is left behind whatever happens.
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._file.truncate(_layout(count).itemsize)
        self.memory = _mapped(self._file, count)
        self._command = [game, str(count)]
        # Making an emulator takes a tenth of a second, one after the other in a process: several make them sooner. But
        # work is shared within a process only, and one that has to wait for a core holds up its group: few are better.
        n_processes = -(-count // PER_PROCESS)
        bounds = np.linspace(0, count, n_processes + 1).astype(int)
        parts = [slice(int(begin), int(end)) for begin, end in pairwise(bounds)]
        self.processes = [self._process(part, seed) for part in parts]

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.kill()
        self._file.close()

    def replace(self, place: int, seed: int) -> _Process:
        """New emulators in place of some."""
        self.processes[place].kill()
        self.processes[place] = self._process(self.processes[place].part, seed)
        return self.processes[place]

    def _process(self, part: slice, seed: int) -> _Process:
        return _Process([*self._command, str(seed)], part, self._file.fileno())


class _Process:
    """A process with some emulators of a group; it begins with all of them at the start of an episode."""

    def __init__(self, command: list[str], part: slice, memory: int) -> None:
        self.part = part
        source = str(Path(__file__).parents[3])  # the same lazymdp, installed or not
        paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lazymdp.learn.deep.atari", *command, str(part.start), str(part.stop), str(memory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=[memory], start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        self._waiting, self._started, self.trouble = True, False, ""

    def ask(self) -> None:
        """Has them step."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: `answers` will say so
            self._process.stdin.write(b"s")
        self._waiting = True

    def answers(self, patience: float) -> bool:
        """Whether it answers in time, if it was asked."""
        if self._waiting:
            assert self._process.stdout is not None
            allowed = patience if self._started else 10.0 * patience
            ready, _, _ = select.select([self._process.stdout], [], [], allowed)
            self._waiting = not (ready and self._process.stdout.read(1) == b".")
            self.trouble = "ended" if ready else f"gave no answer within {allowed:g} s"
            self._started = True
        return not self._waiting

    def kill(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def _layout(count: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("frame", np.uint8, (count, SIDE, SIDE)),
            ("action", np.int64, (count,)),
            ("reward", np.float32, (count,)),
            ("ended", np.bool_, (count,)),
            ("cut", np.bool_, (count,)),
            ("lost", np.bool_, (count,)),
        ],
        align=True,
    )


def _mapped(file: Any, count: int) -> dict[str, NDArray[Any]]:
    """The shared memory, by name."""
    memory = np.memmap(file, dtype=_layout(count), mode="r+", shape=(1,))
    return {name: np.asarray(memory[name][0]) for name in memory.dtype.names or ()}


def _game(env: str) -> tuple[str, int]:
    """The name of a game for ale-py, and how many actions it has."""
    try:
        import ale_py
        import ale_py.roms
    except ImportError as error:
        raise ImportError("Atari games need ale-py: pip install 'lazymdp[atari]'") from error
    gym.register_envs(ale_py)
    try:
        game = str(gym.spec(env).kwargs["game"])
    except (gym.error.Error, KeyError) as error:
        raise ValueError(f"there is no Atari game {env!r}: {error}") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path(game))
    return game, len(ale.getMinimalActionSet())


def vector_env(game: str, count: int, threads: int) -> Any:
    """ale-py's vector environment with Dopamine's protocol, one frame at a time."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game, count, num_threads=threads, repeat_action_probability=0.25, noop_max=0, use_fire_reset=False,
        episodic_life=False, reward_clipping=False, max_num_frames_per_episode=MAX_FRAMES, frameskip=FRAMES_PER_STEP,
        stack_num=1, img_height=SIDE, img_width=SIDE, grayscale=True, maxpool=True, autoreset_mode="SameStep",
    )  # fmt: skip


def main(game: str, count: int, seed: int, begin: int, end: int, memory: int) -> None:
    """The emulators' side: a step for every byte on standard input, a byte on standard output when it is made.

    Args:
        game: Name of the game for ale-py.
        count: Emulators of the group.
        seed: Of the group.
        begin: The first that is emulated here.
        end: The one after the last.
        memory: The file shared with the learner, by its number.
    """
    answer, asked = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # whatever the emulator prints must not be taken for an answer
    with os.fdopen(memory, "r+b") as file:
        shared = {name: array[begin:end] for name, array in _mapped(file, count).items()}
    threads = max(1, _cores.available() * (end - begin) // count)  # a group may use every core while the other waits
    env = vector_env(game, end - begin, threads)
    frames, _ = env.reset(seed=seed + begin)
    shared["frame"][:], shared["lost"][:] = frames[:, 0], True
    shared["reward"][:], shared["ended"][:], shared["cut"][:] = 0.0, False, False
    os.write(answer, b".")
    while os.read(asked, 1):
        frames, shared["reward"][:], shared["ended"][:], cut, _ = env.step(shared["action"].copy())
        shared["cut"][:], shared["lost"][:] = cut & ~shared["ended"], False
        shared["frame"][:] = frames[:, 0]
        os.write(answer, b".")
    os._exit(0)  # closing can hang, and there is nothing to lose


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
