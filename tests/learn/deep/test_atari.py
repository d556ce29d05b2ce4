"""Atari: Dopamine's protocol, emulators that hang, runs that are resumed. Needs ale-py."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from small_runs import same

pytest.importorskip("jax")
pytest.importorskip("ale_py")

from lazymdp.experiments import atari_ready
from lazymdp.learn.deep.atari import AtariHost
from lazymdp.learn.deep.config import DQNConfig, PQNConfig
from lazymdp.learn.deep.factory import make_env
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.learn.deep.trainer import Training


@pytest.fixture
def host():
    made = AtariHost("ALE/Breakout-v5", 4)
    made.start(0)
    yield made
    made.close()


def frames_of(host, seed, steps):
    """The frames of so many random steps of all groups."""
    generator = np.random.default_rng(seed)
    frames = []
    for _ in range(steps):
        for group in range(len(host.groups)):
            frames.append(np.array(host.receive(group).frame))
            host.send(group, generator.integers(host.n_actions, size=2))
    return np.array(frames)


def test_frames_follow_from_the_seed(host):
    assert (host.n_actions, host.shape, len(host.groups)) == (4, (84, 84, 4), 2)
    assert host.receive(0).lost.all() and host.receive(1).lost.all()
    first = frames_of(host, 0, 40)
    assert first.dtype == np.uint8 and first.shape == (80, 2, 84, 84) and first.max() > 100
    assert not host.receive(0).lost.any()
    host.start(0)
    np.testing.assert_array_equal(frames_of(host, 0, 40), first)
    host.restore(0, host.arrays())
    assert host.receive(0).lost.all()
    assert not np.array_equal(frames_of(host, 0, 40), first)  # new episodes, not the old ones again


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_emulators_that_hang_or_end_are_replaced_and_the_run_continues(host, how):
    frames_of(host, 0, 3)
    host.receive(1)
    host.patience = 3.0
    os.kill(host._groups[1].processes[0]._process.pid, how)
    host.send(1, np.zeros(2, dtype=int))
    said = {signal.SIGSTOP: "did not answer within 3 s", signal.SIGKILL: "ended"}[how]
    with pytest.warns(UserWarning, match=rf"{said} and are replaced \(replacement 1\); 2 episodes are lost"):
        outcome = host.receive(1)
    assert outcome.lost.all() and not outcome.reward.any() and not host.receive(0).lost.any()
    assert frames_of(host, 1, 3).shape == (6, 2, 84, 84)


PROTOCOL = """
import os
import numpy as np
from lazymdp.learn.deep import atari

env = atari.vector_env("space_invaders", 6, 1)
first, _ = env.reset(seed=3)
assert (first == first[0]).all()  # no no-op starts
env.close()

env = atari.vector_env("breakout", 6, 1)
env.reset(seed=3)
generator, differ, lives = np.random.default_rng(0), False, np.full(6, 5)
for _ in range(400):
    frames, reward, terminated, truncated, info = env.step(np.full(6, generator.integers(4)))
    differ |= bool((frames != frames[0]).any())
    lost, lives = (info["lives"] < lives) & (info["lives"] > 0), info["lives"]
    assert not (lost & terminated).any()  # lives do not end episodes
    if differ and (lives < 5).all():
        break
assert differ and (lives < 5).any()  # the same actions, but sticky; no fire at reset
env.close()

env = atari.vector_env("ms_pacman", 2, 1)
env.reset(seed=0)
assert max(env.step(generator.integers(9, size=2))[1].max() for _ in range(200)) >= 10.0  # not clipped
env.close()

atari.MAX_FRAMES = 400
env = atari.vector_env("ms_pacman", 2, 1)
env.reset(seed=0)
ends = [env.step(np.zeros(2, dtype=np.int64))[2:4] for _ in range(100)]
assert not np.any(ends[:-1]) and not ends[-1][0].any() and ends[-1][1].all()  # truncated after so many frames
print("as Dopamine", flush=True)
os._exit(0)
"""


def test_the_protocol_is_dopamines():
    from lazymdp.learn.deep import atari

    assert (atari.MAX_FRAMES, atari.FRAMES_PER_STEP, atari.SIDE) == (100_000, 4, 84)
    found = subprocess.run([sys.executable, "-c", PROTOCOL], capture_output=True, text=True, timeout=120)
    assert "as Dopamine" in found.stdout, found.stderr


def test_an_unknown_game_is_named():
    with pytest.raises(ValueError, match="env is 'ALE/Nothing-v5', which is not an Atari game"):
        make_env("ALE/Nothing-v5", 2)


SETTINGS = {
    "pqn": PQNConfig.atari(steps=160, n_envs=4, rollout=10, epochs=1, minibatches=2, network="mlp", hidden=(16, 16)),
    "dqn": DQNConfig.atari(
        steps=160, eta=0.0, n_envs=4, rollout=10, buffer_size=80, learning_starts=40, network="mlp", hidden=(16,)
    ),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_run_is_resumed_with_new_episodes_and_what_it_learned(settings):
    config = TrainConfig("ALE/Pong-v5", settings, "noop")
    run = Training(config)
    for _ in range(2):
        run.advance()
    arrays, part = run.arrays(), run.replay_part()
    assert sum(array.nbytes for array in arrays.values()) < 20e6
    ends = []
    for _ in range(2):
        again = Training(config, arrays, [] if part is None else [part])
        assert again.step == 80
        while not again.done:
            again.advance()
        assert again.report() == []  # no game of Pong ends so soon, and those begun before do not count
        ends.append(again.arrays())
        again.close()
    same(ends[0], ends[1])
    changed = [
        name for name in arrays if name.startswith(".learner.parameters") and (arrays[name] != ends[0][name]).any()
    ]
    assert changed
    run.close()


def test_convolutions_learn():
    settings = PQNConfig.atari(steps=40, n_envs=2, rollout=10, epochs=1, minibatches=2)
    run = Training(TrainConfig("ALE/Pong-v5", settings))
    before = run.arrays()
    while not run.done:
        run.advance()
    run.report()
    after = run.arrays()
    assert all((before[name] != after[name]).any() for name in before if ".parameters" in name and "kernel" in name)
    agent = run.agent()
    values = agent.q(np.zeros((3, 84, 84, 4), np.uint8), np.array([0.0, 0.1, 0.5]))
    assert values.shape == (3, 6) and len(np.unique(values[:, 0])) == 3
    run.close()


@pytest.mark.parametrize("game", ["AirRaid", "Pong"])
def test_games_of_the_paper_load_step_and_train(game):
    rows = atari_ready.make_job(atari_ready.Config(games=(game,), steps=64, updates=2), game)
    assert rows["game"].tolist() == [game] and rows["steps"][0] == 64 and rows["finite"][0] == 1
    assert rows["frames"][0] > 1 and rows["weight_change"][0] > 0.0
