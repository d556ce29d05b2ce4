"""A small model, small settings and small trainings that several tests of the deep agents share."""

import functools

import numpy as np

import lazymdp as lz
from lazymdp.learn.deep.config import DQNConfig, PQNConfig

SMALL = PQNConfig(steps=20_000, n_envs=16, rollout=8, hidden=(16, 16))
DQN_SMALL = DQNConfig(
    steps=6000, eta=0.1, form="augmented", n_envs=4, rollout=32, buffer_size=800, learning_starts=200,
    target_update_interval=400, hidden=(16,), learning_rate=1e-3, exploration_fraction=1.0, control_budget=0.3,
)  # fmt: skip
DQN_DIAL = DQNConfig(
    steps=6000, eta=(0.01, 0.5), n_envs=4, rollout=32, buffer_size=800, learning_starts=200, target_update_interval=400,
    hidden=(16,), learning_rate=1e-3,
)  # fmt: skip
OPTIONS = ["--algorithm", "pqn", "--n-envs", "16", "--rollout", "8", "--hidden", "16", "16", "--episodes", "8"]
DQN_OPTIONS = ["--algorithm", "dqn", "--n-envs", "4", "--rollout", "32", "--buffer-size", "800", "--learning-starts",
               "200", "--hidden", "16", "--update-interval", "4", "--episodes", "8", "--eta", "0.1"]  # fmt: skip


def same(arrays, other):
    """Fails unless both hold the same arrays, bit for bit."""
    assert arrays.keys() == other.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@functools.cache
def chain(length=6):
    """Walk right to the goal; left leads back to the start. A random step costs much near the goal only."""
    transitions = np.zeros((length + 1, 2, length + 1))
    for state in range(length):
        transitions[state, 0, max(0, state - 2)] = 1.0
        transitions[state, 1, state + 1] = 1.0
    transitions[length, :, length] = 1.0
    rewards = np.zeros((length + 1, 2))
    rewards[length - 1, 1] = 1.0
    return lz.MDP(transitions, rewards, 0.95)


@functools.cache
def key_door_treasure(gamma):
    """Key-Door-Treasure in which an episode may start in any state."""
    base = lz.MDP.from_gymnasium(lz.envs.KeyDoorTreasure(), gamma)
    return lz.MDP(base.transitions, base.rewards, gamma)


def exact_solution(mdp, eta):
    """The exact solution over the uniform default policy."""
    return lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta))


def control_set(mdp, outputs, eta):
    """`[S]` where a network with `[S, A]` or `[S, A + 1]` outputs takes control over the uniform default policy."""
    lazy = outputs.mean(-1) + eta if outputs.shape[1] == mdp.n_actions else outputs[:, -1]
    return (outputs[:, : mdp.n_actions].max(-1) > lazy) & ~mdp.absorbing


@functools.cache
def compiled(algorithm):
    """`start_compiled` and `iterate` of an algorithm, jitted once for all tests."""
    import jax

    from lazymdp.learn.deep.loops import iterate, start_compiled

    return (
        jax.jit(functools.partial(start_compiled, algorithm)),
        jax.jit(functools.partial(iterate, algorithm), donate_argnums=0),
    )


def trained(algorithm, *later, seed=0, price=None, parameters=None):
    """A whole run on a compiled environment, without a trainer.

    Args:
        algorithm: The algorithm.
        later: Algorithms that continue the run one after the other, for example with a lower learning rate.
        seed: Random seed.
        price: Distribution of prices; by default the config's.
        parameters: Parameters of the network to start from.
    """
    import jax

    run = compiled(algorithm)[0](jax.random.key(seed), price, parameters)
    for stage in (algorithm, *later):
        for _ in range(stage.config.iterations):
            run, _ = compiled(stage)[1](run)
    return run


def trained_at(etas, algorithm, *later, seed=0):
    """A run for each price, all of them one program; `later` algorithms continue the runs. Returns `[E]` runs."""
    import jax
    import jax.numpy as jnp

    from lazymdp.learn.deep.loops import iterate, start_compiled
    from lazymdp.learn.deep.prices import Price

    given = jnp.asarray(etas, dtype=jnp.float32)
    start = jax.jit(jax.vmap(functools.partial(start_compiled, algorithm), in_axes=(None, 0)))
    runs = start(jax.random.key(seed), Price(given, given, jnp.zeros_like(given)))
    for stage in (algorithm, *later):
        advance = jax.jit(jax.vmap(functools.partial(iterate, stage)), donate_argnums=0)
        for _ in range(stage.config.iterations):
            runs, _ = advance(runs)
    return runs


def outputs_at(etas, mdp, algorithm, parameters, shared=False):
    """`[E, S, C]` outputs of networks for all states, each at its price; of one network, if it is `shared`."""
    import jax
    import jax.numpy as jnp

    def outputs(parameters, eta):
        return algorithm.network.apply(parameters, jnp.eye(mdp.n_states), jnp.full(mdp.n_states, eta))

    apply = jax.jit(jax.vmap(outputs, in_axes=(None if shared else 0, 0)))
    return np.asarray(apply(parameters, jnp.asarray(etas, dtype=jnp.float32)))


def check_control_sets(mdp, etas, outputs, margin=0.0):
    """Fails unless networks with `[E, S, C]` outputs take control exactly where it is optimal.

    Args:
        mdp: The model.
        etas: `[E]` prices.
        outputs: Outputs for all states at each price.
        margin: States whose exact lazy-gap differs from the price by less than this share of it are left out.
    """
    for eta, found in zip(etas, outputs, strict=True):
        exact = exact_solution(mdp, eta)
        clear = np.abs(exact.lazy_gap - eta) >= margin * eta
        np.testing.assert_array_equal(control_set(mdp, found, eta)[clear], exact.control[clear], err_msg=f"eta {eta}")


@functools.cache
def untrained_agent(env, named="uniform", seed=0, default_policy=None, **settings):
    """An agent with the random network that training starts from: enough for tests of how an agent acts.

    Args:
        env: Name of the environment.
        named: Default policy by name.
        seed: Random seed of the network.
        default_policy: Default policy as a Python object.
        settings: Settings of PQN.
    """
    import jax

    from lazymdp.learn.deep.factory import make_agent, make_algorithm
    from lazymdp.learn.deep.train_config import TrainConfig

    config = TrainConfig(env, PQNConfig(**{"hidden": (16,), **settings}), named)
    algorithm = make_algorithm(config, default_policy, n_envs=1)
    return make_agent(algorithm, algorithm.network.init(jax.random.key(seed)), 0.0)
