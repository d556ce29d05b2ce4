"""Atari games, emulated in separate processes by ale-py's vector environment.

The protocol is Dopamine's: sticky actions (probability 0.25); four frames per step, with the pixelwise maximum of the
last two; 84 x 84 gray pixels; no random no-ops and no FIRE at the start of an episode; the loss of a life does not end
an episode; at most 100,000 frames per episode; the minimal action set. An observation is a stack of four such images;
images from before the start of an episode are black. Rewards are not clipped here.

Emulators can hang. They therefore run in separate processes, and those that do not answer in time are replaced: their
episodes are lost, and the run continues. The state of ale-py's vector environment cannot be saved, so a resumed run
starts new episodes.

`python -m lazymdp.learn.deep.atari` runs one of these processes.
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
from lazymdp._parent import end_with_parent
from lazymdp.learn.deep.host_env import Outcome

SIDE = 84
"""Height and width of a frame, in pixels."""
FRAMES_PER_STEP = 4
MAX_FRAMES = 100_000
"""Time limit of an episode, in frames."""
PER_PROCESS = 256
"""Largest number of emulators in one process."""


class AtariHost:
    """Copies of an Atari game.

    Args:
        env: Id of the game, for example `ALE/Breakout-v5`.
        n_envs: Number of copies.
        n_groups: Number of groups; with two, one steps while the other waits for its actions. If `n_envs` is not
            divisible by it, there is a single group.
        patience: Seconds after which emulators that do not answer are replaced; ten times as long while they start.
    """

    shape: tuple[int, ...] = (SIDE, SIDE, 4)
    dtype: type = np.uint8
    frame_shape: tuple[int, ...] = (SIDE, SIDE)
    n_frames, first_action, noop, repeats = 4, 0, 0, False
    space: spaces.Space[Any] = spaces.Box(0, 255, (SIDE, SIDE, 4), np.uint8)
    max_steps: int | None = MAX_FRAMES // FRAMES_PER_STEP

    def __init__(self, env: str, n_envs: int, n_groups: int = 2, patience: float = 30.0) -> None:
        self.name = env
        self.game, self.n_actions = _game(env)
        self.patience = patience
        size = n_envs // n_groups if n_envs % n_groups == 0 else n_envs
        self.groups = tuple(slice(begin, begin + size) for begin in range(0, n_envs, size))
        self._begun = 0  # number of restarts; each restart uses a new seed
        self._groups: list[_Group] = []

    def like(self, n_envs: int) -> AtariHost:
        """Returns another host environment with `n_envs` copies of the same game."""
        return AtariHost(self.name, n_envs, patience=self.patience)

    def start(self, seed: int) -> None:
        """Begins an episode in every copy."""
        self.close()
        self._seed = seed
        sizes = [group.stop - group.start for group in self.groups]
        self._groups = [_Group(self.game, size, self._new_seed(place)) for place, size in enumerate(sizes)]

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Hands `[M]` actions to the group, which starts to step."""
        self._groups[group].memory["action"][:] = actions
        for process in self._groups[group].processes:
            process.ask()

    def receive(self, group: int) -> Outcome:
        """Waits for the group; replaces emulators that take too long or whose process has ended."""
        asked = self._groups[group]
        for place, process in enumerate(asked.processes):
            if not process.answers(self.patience):
                self._begun += 1
                lost = process.part.stop - process.part.start
                warnings.warn(
                    f"emulators of {self.game} {process.trouble} and are replaced (replacement {self._begun}); {lost} "
                    "episodes are lost.",  # the number makes the text unique: Python shows equal warnings only once
                    stacklevel=2,
                )
                if not asked.replace(place, self._new_seed(group)).answers(self.patience):
                    raise RuntimeError(
                        f"the emulators of {self.game} do not start: see their messages on standard error."
                    )
        return Outcome(*(asked.memory[name] for name in Outcome._fields))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the number of restarts; the state of the emulators cannot be saved."""
        return {"begun": np.array(self._begun)}

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Starts new episodes, because those in progress cannot be restored."""
        self._begun = int(arrays["begun"]) + 1
        self.start(seed)

    def close(self) -> None:
        """Stops the processes."""
        for group in self._groups:
            group.close()
        self._groups = []

    def _new_seed(self, group: int) -> int:
        words = np.random.SeedSequence(self._seed, spawn_key=(group, self._begun)).generate_state(1)
        return int(words[0] >> 2)  # emulators use consecutive seeds from here, each below 2**31


class _Group:
    """Emulators that step together: their processes, and the memory shared with them."""

    def __init__(self, game: str, count: int, seed: int) -> None:
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
        # The file has no name, so nothing is left behind if the process is killed.
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._file.truncate(_layout(count).itemsize)
        self.memory = _mapped(self._file, count)
        self._command = [game, str(count)]
        # A process starts its emulators one after the other, at a tenth of a second each, so several processes are
        # ready sooner. But threads are shared only within a process, and one that waits for a core delays its group.
        n_processes = -(-count // PER_PROCESS)
        bounds = np.linspace(0, count, n_processes + 1).astype(int)
        parts = [slice(int(begin), int(end)) for begin, end in pairwise(bounds)]
        self.processes = [self._process(part, seed) for part in parts]

    def close(self) -> None:
        """Stops the processes."""
        for process in self.processes:
            process.kill()
        self._file.close()

    def replace(self, place: int, seed: int) -> _Process:
        """Replaces a process."""
        self.processes[place].kill()
        self.processes[place] = self._process(self.processes[place].part, seed)
        return self.processes[place]

    def _process(self, part: slice, seed: int) -> _Process:
        return _Process([*self._command, str(seed)], part, self._file.fileno())


class _Process:
    """A process that runs some of the emulators of a group, beginning with new episodes."""

    def __init__(self, command: list[str], part: slice, memory: int) -> None:
        self.part = part
        source = str(Path(__file__).parents[3])  # import this copy of lazymdp, whether it is installed or not
        paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lazymdp.learn.deep.atari", *command, str(part.start), str(part.stop), str(memory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=[memory], start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        self._waiting, self._started, self.trouble = True, False, ""

    def ask(self) -> None:
        """Requests a step."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended: `answers` reports it
            self._process.stdin.write(b"s")
        self._waiting = True

    def answers(self, patience: float) -> bool:
        """Waits for the answer to a pending request; returns whether it came within `patience` seconds."""
        if self._waiting:
            assert self._process.stdout is not None
            allowed = patience if self._started else 10.0 * patience
            ready, _, _ = select.select([self._process.stdout], [], [], allowed)
            self._waiting = not (ready and self._process.stdout.read(1) == b".")
            self.trouble = "ended" if ready else f"did not answer within {allowed:g} s"
            self._started = True
        return not self._waiting

    def kill(self) -> None:
        """Kills the process."""
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
            ("terminated", np.bool_, (count,)),
            ("truncated", np.bool_, (count,)),
            ("lost", np.bool_, (count,)),
        ],
        align=True,
    )


def _mapped(file: Any, count: int) -> dict[str, NDArray[Any]]:
    """Returns the shared memory as arrays, by name."""
    memory = np.memmap(file, dtype=_layout(count), mode="r+", shape=(1,))
    return {name: np.asarray(memory[name][0]) for name in memory.dtype.names or ()}


def _game(env: str) -> tuple[str, int]:
    """Returns the name of a game in ale-py and its number of actions."""
    try:
        import ale_py
        import ale_py.roms
    except ImportError as error:
        raise ImportError("Atari games need ale-py: pip install 'lazymdp[atari]'") from error
    gym.register_envs(ale_py)
    try:
        game = str(gym.spec(env).kwargs["game"])
    except (gym.error.Error, KeyError) as error:
        raise ValueError(f"env is {env!r}, which is not an Atari game: {error}") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.loadROM(ale_py.roms.get_rom_path(game))
    return game, len(ale.getMinimalActionSet())


def vector_env(game: str, count: int, threads: int) -> Any:
    """Returns ale-py's vector environment with Dopamine's protocol, without frame stacking."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game, count, num_threads=threads, repeat_action_probability=0.25, noop_max=0, use_fire_reset=False,
        episodic_life=False, reward_clipping=False, max_num_frames_per_episode=MAX_FRAMES, frameskip=FRAMES_PER_STEP,
        stack_num=1, img_height=SIDE, img_width=SIDE, grayscale=True, maxpool=True, autoreset_mode="SameStep",
    )  # fmt: skip


def main(game: str, count: int, seed: int, begin: int, end: int, memory: int) -> None:
    """Runs emulators: makes one step per byte on standard input and answers with a byte on standard output.

    Args:
        game: Name of the game in ale-py.
        count: Number of emulators in the group.
        seed: Random seed of the group.
        begin: First emulator of this process.
        end: Last emulator of this process plus one.
        memory: File descriptor of the shared memory.
    """
    end_with_parent()  # an emulator that hangs would not notice that its input has ended
    answer, asked = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # output of the emulator must not be mistaken for an answer
    with os.fdopen(memory, "r+b") as file:
        shared = {name: array[begin:end] for name, array in _mapped(file, count).items()}
    threads = max(1, _cores.available() * (end - begin) // count)  # a group may use all cores while the other waits
    env = vector_env(game, end - begin, threads)
    frames, _ = env.reset(seed=seed + begin)
    shared["frame"][:], shared["lost"][:] = frames[:, 0], True
    shared["reward"][:], shared["terminated"][:], shared["truncated"][:] = 0.0, False, False
    os.write(answer, b".")
    while os.read(asked, 1):
        frames, shared["reward"][:], shared["terminated"][:], truncated, _ = env.step(shared["action"].copy())
        shared["truncated"][:], shared["lost"][:] = truncated & ~shared["terminated"], False
        shared["frame"][:] = frames[:, 0]
        os.write(answer, b".")
    os._exit(0)  # closing can hang, and there is nothing to save


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
