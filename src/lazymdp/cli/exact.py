"""The commands for models: `lazymdp solve | path | explore | list`."""

from __future__ import annotations

import math
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import tyro

import lazymdp as lz
from lazymdp._arguments import check_number
from lazymdp._files import write_text
from lazymdp._progress import progress_bars
from lazymdp.cli.output import print_json, show_facts, show_line, show_table
from lazymdp.envs.loading import Source, load_model
from lazymdp.exact.path import EtaPath
from lazymdp.experiments import EXPERIMENTS
from lazymdp.show.explorer_data import check_axes

_arg = tyro.conf.arg
_limit = tyro.conf.create_mutex_group(required=False, title="limit on control")

_PLANNED = {"return": "base_value", "control_count": "control_count", "control_rate": "control_rate", "eta": "eta"}
"""What is printed of a plan within a limit on control, and its attributes."""

# Options that several commands share, with their help.
Model = Annotated[
    str,
    tyro.conf.Positional,
    _arg(
        metavar="MODEL",
        help="An .npz file saved by MDP.save, a text file with a map, or the id of a Gymnasium environment that has a "
        "transition table P, such as FrozenLake-v1. `lazymdp list` shows more.",
    ),
]
Gamma = Annotated[
    float | None,
    _arg(
        metavar="GAMMA",
        help="Discount factor.",
        help_behavior_hint="(default: 0.99, or the one saved in an .npz file)",
    ),
]
DefaultPolicy = Annotated[
    str,
    _arg(
        metavar="POLICY",
        help="The policy that acts when the agent is lazy: uniform, optimal, second-best, an action by name or number, "
        "or an .npy file with a table [S, A] of probabilities.",
    ),
]
Tolerance = Annotated[
    float | None,
    _arg(
        metavar="ERROR",
        help="Largest error of the values, guaranteed; for models with more than a few thousand states.",
        help_behavior_hint="(default: exact)",
    ),
]


def solve(
    model: Model,
    eta: Annotated[float, _arg(metavar="PRICE", help="Price of taking control for one step.")],
    gamma: Gamma = None,
    default_policy: DefaultPolicy = "uniform",
    rows: Annotated[int, _arg(metavar="N", help="Number of states to list, the most important ones first.")] = 15,
    json: Annotated[bool, _arg(help="Print JSON, with all states.", help_behavior_hint="")] = False,
) -> int:
    """Solve a model at one price: where to take control, and how much that is worth."""
    source = load_model(model, gamma)
    mdp = source.mdp
    lazy = lz.LazyMDP(mdp, lz.policies.named(mdp, default_policy), eta)
    solution = lz.solve(lazy)
    evaluation = lz.evaluate(lazy, solution.action)
    facts = {
        "model": source.name,
        "states": mdp.n_states,
        "eta": eta,
        "default_policy": default_policy,
        "control_states": int(solution.control.sum()),
        "return": mdp.start_average(evaluation.base_value),
        "control_count": mdp.start_average(evaluation.control_count),
        "value": mdp.start_average(solution.value),
        "error_bound": solution.error_bound,
        "converged": solution.converged,
    }
    if json:
        arrays = {name: getattr(solution, name) for name in ("control", "action", "lazy_gap", "value")}
        print_json({**facts, "per_state": arrays})
        return 0
    show_facts(facts)
    _show_states(mdp, solution, rows)
    return 0


def _show_states(mdp: lz.MDP, solution: lz.Solution, rows: int) -> None:
    """Print the states with the largest lazy-gap."""
    order = np.argsort(-np.where(mdp.absorbing, -np.inf, solution.lazy_gap), kind="stable")[: max(rows, 0)]
    cells = [
        (
            mdp.describe_state(state),
            "lazy" if solution.action[state] == mdp.n_actions else mdp.describe_action(int(solution.action[state])),
            f"{solution.lazy_gap[state]:.4g}",
            f"{solution.value[state]:.4g}",
        )
        for state in map(int, order)
    ]
    show_table(("state", "choice", "lazy-gap", "value"), cells, f"the {order.size} most important states")


def path(
    model: Model,
    gamma: Gamma = None,
    default_policy: DefaultPolicy = "uniform",
    tol: Tolerance = None,
    control_count: Annotated[
        float | None,
        _limit,
        _arg(
            metavar="N",
            help="Find the largest return with at most N expected discounted controls.",
            help_behavior_hint="",
        ),
    ] = None,
    control_rate: Annotated[
        float | None,
        _limit,
        _arg(
            metavar="SHARE",
            help="Find the largest return with control in at most this share of the discounted steps, between 0 and 1.",
            help_behavior_hint="",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        _arg(
            aliases=["-o"],
            metavar="FILE",
            help="Write the best policy within the limit to this CSV file: one row per state, or per state of each of "
            "two policies, one of which is drawn for every episode.",
            help_behavior_hint="",
        ),
    ] = None,
    rows: Annotated[int, _arg(metavar="N", help="Number of policies to list, spread evenly over the path.")] = 12,
    json: Annotated[bool, _arg(help="Print JSON, with all policies.", help_behavior_hint="")] = False,
) -> int:
    """Solve a model for every price at once: all optimal policies, and the best one within a limit on control."""
    _check_limits(control_count, control_rate, out)
    source = load_model(model, gamma)
    found = _eta_path(source, default_policy, tol)
    starts = np.append(0.0, found.breakpoints)
    facts: dict[str, Any] = {
        "model": source.name,
        "states": source.mdp.n_states,
        "default_policy": default_policy,
        "policies": starts.size,
        "eta_min": lz.eta_min(source.mdp, found.default_policy),
        "eta_max": lz.eta_max(source.mdp, found.default_policy),
        "indexable": found.is_indexable,
    }
    plan = _plan(found, control_count, control_rate)
    if out is not None and plan is not None:
        plan.to_csv(out)
    columns = {"from_eta": starts, "return": found.start_base_values, "control_count": found.start_control_counts}
    if json:
        if plan is not None:
            facts["plan"] = {name: getattr(plan, field) for name, field in _PLANNED.items()} | {"weight": plan.weight}
        print_json({**facts, "per_policy": columns, "per_state": {"critical_eta": found.critical_eta}})
        return 0
    show_facts(facts)
    if plan is not None:
        counted = control_count is not None
        share = f"control in at most {100.0 * (control_rate or 0.0):.4g}% of the steps"
        limit = f"at most {control_count:g} controls" if counted else share
        planned = [f"{name.replace('_', ' ')} {getattr(plan, field):.4g}" for name, field in _PLANNED.items()]
        mixed = f" (a mixture of two policies; the one with more control has probability {plan.weight:.0%})"
        show_line(f"With {limit} (expected, discounted): {', '.join(planned)}{mixed if plan.weight < 1.0 else ''}.")
        if out is not None:
            show_line(f"Policy: {out.resolve()}")
    # Many policies differ only in states that are not reached: each return is listed once, from the lowest price on.
    different = np.flatnonzero(np.append(True, np.diff(found.start_control_counts) != 0.0))
    places = different[np.unique(np.linspace(0, different.size - 1, max(rows, 0)).round().astype(int))]
    cells = [[f"{column[place]:.4g}" for column in columns.values()] for place in places]
    titles = [name.replace("_", " ") for name in columns]
    what = "optimal policies" if different.size == starts.size else f"control counts of {starts.size} optimal policies"
    show_table(titles, cells, f"{places.size} of the {different.size} {what}")
    return 0


def _check_limits(control_count: float | None, control_rate: float | None, out: Path | None) -> None:
    """Raise an error if a limit on control is not valid, or if there is none to write a policy for."""
    if control_count is not None:
        check_number(control_count, "--control-count", 0.0, math.inf, "a number of controls: at least 0")
    if control_rate is not None:
        check_number(control_rate, "--control-rate", 0.0, 1.0, "a share of the steps between 0 and 1, such as 0.1")
    if out is not None:
        if control_count is None and control_rate is None:
            raise ValueError(
                f"--out is {out}, expected --control-count or --control-rate with it, which limit control."
            )
        if not out.parent.is_dir():
            raise FileNotFoundError(f"cannot write {out}: there is no folder {out.parent}.")


def _plan(found: EtaPath, control_count: float | None, control_rate: float | None) -> lz.ControlPlan | None:
    """Return the best plan within a limit on control, or None if there is no limit."""
    if control_rate is not None:
        return found.for_control_rate(control_rate)
    return None if control_count is None else found.for_control_count(control_count)


def explore(
    model: Model,
    out: Annotated[Path, _arg(aliases=["-o"], metavar="FILE", help="The HTML file to write.")] = Path("explorer.html"),
    gamma: Gamma = None,
    default_policy: DefaultPolicy = "uniform",
    tol: Tolerance = None,
    title: Annotated[
        str | None,
        _arg(metavar="TEXT", help="Title of the page.", help_behavior_hint="(default: the name of the model)"),
    ] = None,
    axes: Annotated[
        tuple[str, ...] | None,
        _arg(
            metavar="NAME=SIZE ...",
            help="One to three variables whose product is the set of states, the last one changing fastest, to draw "
            "the model as a map: for example wear=20 jobs=6.",
            help_behavior_hint="(default: the map of a grid world, or a table)",
        ),
    ] = None,
    open: Annotated[bool, _arg(help="Open the page in the web browser.", help_behavior_hint="")] = False,
) -> int:
    """Write a web page that shows the optimal policy of a model at every price, with a slider for the price."""
    if not out.parent.is_dir():
        raise FileNotFoundError(f"cannot write {out}: there is no folder {out.parent}.")
    sizes = _axes(axes)
    source = load_model(model, gamma)
    if sizes:
        check_axes(sizes, source.mdp)  # before the path is computed, which can take long
    found = _eta_path(source, default_policy, tol)
    page = lz.show.explorer(found, world=None if sizes else source.world, axes=sizes, title=title or source.name)
    write_text(out, page)
    show_line(f"Explorer: {out.resolve()}")
    if open:
        webbrowser.open(out.resolve().as_uri())
    return 0


def _axes(axes: tuple[str, ...] | None) -> dict[str, int] | None:
    """Return the names and sizes in arguments such as `wear=20`, or None if there are none."""
    sizes: dict[str, int] = {}
    for text in axes or ():
        name, _, size = text.rpartition("=")
        if not name or "=" in name or not size.isdecimal() or name in sizes:
            raise ValueError(
                f"--axes has {text!r}, expected different names with a size, with spaces between them, such as wear=20 "
                "jobs=6."
            )
        sizes[name] = int(size)
    return sizes or None


def list_names(json: Annotated[bool, _arg(help="Print JSON.", help_behavior_hint="")] = False) -> int:
    """List the names that the other commands accept: experiments, models and default policies."""
    ids = [
        name
        for name, spec in gym.registry.items()
        if name.startswith("lazymdp/") or "toy_text" in str(spec.entry_point)
    ]
    names = {
        "experiments": {name: experiment.title for name, experiment in EXPERIMENTS.items()},
        "models": {
            **{name: "a Gymnasium environment" for name in ids if name != "Blackjack-v1"},  # has no table P
            "FILE.npz": "a model saved by MDP.save",
            "FILE": "a text file with a map of Key-Door-Treasure (S K D T A #) or of Rivers & Bridges (S ~ = G)",
        },
        "default_policies": {
            "uniform": "all actions are equally likely",
            "optimal": "an optimal policy of the base model; actions that tie are equally likely",
            "second-best": "the best action that is not optimal",
            "ACTION": "always the same action, given by name or number",
            "FILE.npy": "a table [S, A] of probabilities",
        },
    }
    if json:
        print_json(names)
        return 0
    for kind, entries in names.items():
        show_line(f"{kind.replace('_', ' ')}:")
        show_facts({f"  {name}": words for name, words in entries.items()})
        show_line("")
    return 0


def _eta_path(source: Source, default_policy: str, tol: float | None) -> EtaPath:
    """Compute the eta-path of a model, with a progress bar."""
    policy = lz.policies.named(source.mdp, default_policy)
    with progress_bars() as bars:
        task = bars.add_task("eta-path", total=None)

        def tell(count: int, price: float) -> None:
            bars.update(task, description=f"{count} policy changes, down to eta = {price:.3g}")

        found = lz.eta_path(source.mdp, policy, tol=tol, progress=tell)
        bars.update(task, total=1, completed=1)
    return found
