"""Atari games, emulated in processes of their own by ale-py's vector environment.

The protocol is Dopamine's: sticky actions (0.25), four frames to a step of which the last two are joined by their
maximum, 84 x 84 gray pixels, no no-op starts, no fire at the start, lives do not end episodes, 100,000 frames at most,
the smallest set of actions. Four of these images make an observation; those before an episode began are black. Rewards
are as the game gives them.

An emulator can hang. Each group therefore runs in a process of its own, and one that does not answer in time is
replaced: its episodes are cut off, and the run goes on. A run that is picked up again begins new episodes too, as the
emulators cannot be put down.

`python -m lazymdp.learn.atari` is the emulators' side of it.
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
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp import cores
from lazymdp.learn.hosts import Seen

SIDE = 84
FRAMES_PER_STEP = 4


class AtariHost:
    """Copies of an Atari game.

    Args:
        env: Id of the game, `ALE/Breakout-v5`.
        n_envs: Number of copies.
        n_groups: Processes they are spread over.
        patience: Seconds after which an emulator that does not answer is replaced; its start may take ten times that.
    """

    shape: tuple[int, ...] = (SIDE, SIDE, 4)
    dtype: type = np.uint8
    stack, noop, repeats = 4, 0, False

    def __init__(self, env: str, n_envs: int, n_groups: int = 2, patience: float = 30.0) -> None:
        self.name = env
        self.game, self.n_actions = _game(env)
        self.patience = patience
        self._begun = 0  # how often emulators were started: each time from another seed
        n_groups = n_groups if n_envs % n_groups == 0 else 1
        size = n_envs // n_groups
        self.groups = tuple(slice(begin, begin + size) for begin in range(0, n_envs, size))
        self._emulators: list[_Emulators] = []

    def like(self, n_envs: int) -> AtariHost:
        """Another host of the same game."""
        return AtariHost(self.name, n_envs, len(self.groups), self.patience)

    def start(self, seed: int) -> None:
        """Begins an episode everywhere."""
        self.close()
        self._seed = seed
        sizes = [group.stop - group.start for group in self.groups]
        self._emulators = [_Emulators(self.game, size, self._new_seed(group)) for group, size in enumerate(sizes)]
        self._waiting = [True] * len(sizes)

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Has the group step."""
        self._emulators[group].actions[:] = actions
        self._emulators[group].ask()
        self._waiting[group] = True

    def receive(self, group: int) -> Seen:
        """Waits for the group; replaces it if it takes too long or has ended."""
        emulators = self._emulators[group]
        if self._waiting[group]:
            if not emulators.answers(self.patience):
                emulators = self._replace(group)
            self._waiting[group] = False
        return emulators.seen()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """How often emulators were started: they themselves cannot be put down."""
        return {"begun": np.array(self._begun)}

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Begins new episodes."""
        self._begun = int(arrays["begun"]) + 1
        self.start(seed)

    def close(self) -> None:
        """Ends the processes."""
        for emulators in self._emulators:
            emulators.kill()
        self._emulators = []

    def _replace(self, group: int) -> _Emulators:
        self._begun += 1
        warnings.warn(
            f"the emulators of group {group} of {self.game} gave no answer within {self.patience:g} s and are "
            "replaced; their episodes are cut off.",
            stacklevel=2,
        )
        old = self._emulators[group]
        old.kill()
        new = self._emulators[group] = _Emulators(self.game, old.count, self._new_seed(group))
        if not new.answers(self.patience):
            raise RuntimeError(f"the emulators of {self.game} give no answer: see what they said on standard error.")
        return new

    def _new_seed(self, group: int) -> int:
        words = np.random.SeedSequence((self._seed, group, self._begun)).generate_state(1)
        return int(words[0] >> 2)  # consecutive seeds from here, each below 2**31


class _Emulators:
    """The process of one group, and the memory shared with it."""

    def __init__(self, game: str, count: int, seed: int) -> None:
        self.count = count
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.NamedTemporaryFile(dir=folder, prefix="lazymdp-", delete=False) as file:
            file.truncate(_layout(count).itemsize)
            self._path = Path(file.name)
        self._memory = _mapped(self._path, count)
        self.actions = self._memory["action"]
        command = [sys.executable, "-m", "lazymdp.learn.atari", game, str(count), str(seed), str(self._path)]
        source = str(Path(__file__).parents[2])  # the same lazymdp, installed or not
        paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env={**os.environ, "PYTHONPATH": paths}
        )
        self._started = False

    def ask(self) -> None:
        """Has them step with `actions`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: `answers` will say so
            self._process.stdin.write(b"s")

    def answers(self, patience: float) -> bool:
        """Whether it answers in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience if self._started else 10.0 * patience)
        answered = bool(ready) and self._process.stdout.read(1) == b"."
        if answered and not self._started:
            self._started = True
            self._path.unlink(missing_ok=True)  # both have it mapped: nothing is left behind whatever happens
        return answered

    def seen(self) -> Seen:
        """What came of the last step."""
        memory = self._memory
        return Seen(memory["frame"], memory["reward"], memory["ended"], memory["cut"])

    def kill(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._path.unlink(missing_ok=True)


def _layout(count: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("frame", np.uint8, (count, SIDE, SIDE)),
            ("action", np.int64, (count,)),
            ("reward", np.float32, (count,)),
            ("ended", np.bool_, (count,)),
            ("cut", np.bool_, (count,)),
        ],
        align=True,
    )


def _mapped(path: Path, count: int) -> dict[str, NDArray[Any]]:
    """The shared memory, by name."""
    memory = np.memmap(path, dtype=_layout(count), mode="r+", shape=(1,))
    return {name: np.asarray(memory[name][0]) for name in memory.dtype.names or ()}


def _game(env: str) -> tuple[str, int]:
    """The name of a game for ale-py, and how many actions it has."""
    try:
        import ale_py
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


def vector_env(game: str, count: int) -> Any:
    """ale-py's vector environment with Dopamine's protocol, one frame at a time."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game, count, num_threads=cores.available(), repeat_action_probability=0.25, noop_max=0, use_fire_reset=False,
        episodic_life=False, reward_clipping=False, max_num_frames_per_episode=100_000, frameskip=FRAMES_PER_STEP,
        stack_num=1, img_height=SIDE, img_width=SIDE, grayscale=True, maxpool=True, autoreset_mode="SameStep",
    )  # fmt: skip


def main(game: str, count: int, seed: int, path: Path) -> None:
    """The emulators' side: a step for every byte on standard input, a byte on standard output when it is made."""
    answer, asked = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # whatever the emulator prints must not be taken for an answer
    memory = _mapped(path, count)
    env = vector_env(game, count)
    frames, _ = env.reset(seed=seed)
    memory["frame"][:], memory["cut"][:] = frames[:, 0], True
    os.write(answer, b".")
    while os.read(asked, 1):
        frames, memory["reward"][:], memory["ended"][:], cut, _ = env.step(memory["action"].copy())
        memory["cut"][:] = cut & ~memory["ended"]
        memory["frame"][:] = frames[:, 0]
        os.write(answer, b".")
    os._exit(0)  # closing can hang, and there is nothing to lose


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
