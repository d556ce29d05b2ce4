"""The command line: `lazymdp COMMAND`. It parses, calls and shows; no logic is here.

Exit codes: 0 done, 1 a claim of the paper does not hold, 2 bad input, 130 interrupted. Tables go to standard output,
progress and errors to standard error, so that `--json` can be piped.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import gymnasium as gym
import numpy as np
import tyro
from rich.markup import escape
from rich.table import Table

import lazymdp as lz
from lazymdp._files import write_text
from lazymdp._progress import ERR, progress_bars
from lazymdp.cli.output import INTERRUPTED, OUT, print_json, show_facts
from lazymdp.cli.train import evaluate, resume, train
from lazymdp.envs.loading import Source, load_model
from lazymdp.exact.path import EtaPath
from lazymdp.experiments import EXPERIMENTS
from lazymdp.experiments.runner import EXPLORER, Outcome, reproduce, write_index

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]


# -- commands --------------------------------------------------------------------------------------------------------


def solve(
    model: Model, eta: float, gamma: float | None = None, default: str = "uniform", rows: int = 15, json: bool = False
) -> int:
    """Solve a model at one price: where to take control, and what it is worth.

    Args:
        model: An .npz file saved by MDP.save, a map in a text file, or a Gymnasium id that carries P (FrozenLake-v1).
        eta: Price of a step of control.
        gamma: Discount, 0.99 if not given; an .npz file has its own.
        default: What acts when the agent is lazy: uniform, optimal, second-best, an action, or an .npy file.
        rows: How many states to list, the most important first.
        json: Print JSON, with every state.
    """
    source = load_model(model, gamma)
    mdp = source.mdp
    lazy = lz.LazyMDP(mdp, lz.policies.named(mdp, default), eta)
    solution = lz.solve(lazy)
    found = lz.evaluate(lazy, solution.action)
    facts = {
        "model": source.name,
        "states": mdp.n_states,
        "eta": eta,
        "default": default,
        "control_states": int(solution.control.sum()),
        "return": mdp.start_average(found.base_value),
        "controls": mdp.start_average(found.control_count),
        "value": mdp.start_average(solution.value),
        "error_bound": solution.error_bound,
        "converged": solution.converged,
    }
    if json:
        arrays = {name: getattr(solution, name) for name in ("control", "action", "lazy_gap", "value")}
        print_json({**facts, "per_state": arrays})
        return 0
    show_facts(facts)
    order = np.argsort(-np.where(mdp.absorbing, -np.inf, solution.lazy_gap), kind="stable")[: max(rows, 0)]
    table = Table("state", "choice", "lazy-gap", "value", title=f"the {order.size} states that matter most")
    for state in map(int, order):
        choice = _choice(mdp, int(solution.action[state]))
        table.add_row(
            mdp.describe_state(state), choice, f"{solution.lazy_gap[state]:.4g}", f"{solution.value[state]:.4g}"
        )
    OUT.print(table)
    return 0


def path(
    model: Model,
    gamma: float | None = None,
    default: str = "uniform",
    tol: float | None = None,
    budget: float | None = None,
    rows: int = 12,
    json: bool = False,
) -> int:
    """Solve a model for every price at once: all breakpoints, and the best policy within a budget of controls.

    Args:
        model: An .npz file saved by MDP.save, a map in a text file, or a Gymnasium id that carries P (FrozenLake-v1).
        gamma: Discount, 0.99 if not given; an .npz file has its own.
        default: What acts when the agent is lazy: uniform, optimal, second-best, an action, or an .npy file.
        tol: Proven error of the values, for models of more than a few thousand states; exact if not given.
        budget: At most so many expected discounted controls.
        rows: How many policies to list, evenly along the path.
        json: Print JSON, with every policy.
    """
    source = load_model(model, gamma)
    found = _path(source, default, tol)
    starts = np.append(0.0, found.breakpoints)
    facts: dict[str, Any] = {
        "model": source.name,
        "states": source.mdp.n_states,
        "default": default,
        "policies": starts.size,
        "eta_min": lz.eta_min(source.mdp, found.default_policy),
        "eta_max": lz.eta_max(source.mdp, found.default_policy),
        "indexable": found.is_indexable,
    }
    if budget is not None:
        plan = found.for_control_count(budget)
        within = {"return": plan.base_value, "controls": plan.control_count}
        facts["budget"] = {"eta": plan.eta, **within, "weight": plan.weight}
    columns = {"from_eta": starts, "return": found.start_base_values, "controls": found.start_control_counts}
    if json:
        print_json({**facts, "per_policy": columns, "per_state": {"critical_eta": found.critical_eta}})
        return 0
    show_facts({name: fact for name, fact in facts.items() if name != "budget"})
    if budget is not None:
        OUT.print(
            f"At most {budget:g} controls: return {plan.base_value:.4g} with {plan.control_count:.4g} controls, "
            f"at eta = {plan.eta:.4g}"
            + (f" (a mixture, {plan.weight:.0%} the policy below it)." if plan.weight < 1 else ".")
        )
    table = Table(
        "from eta", "return", "controls", title=f"optimal policies, {min(rows, starts.size)} of {starts.size}"
    )
    for place in np.unique(np.linspace(0, starts.size - 1, max(rows, 0)).round().astype(int)):
        table.add_row(*(f"{column[place]:.4g}" for column in columns.values()))
    OUT.print(table)
    return 0


def explore(
    model: Model,
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("explorer.html"),
    gamma: float | None = None,
    default: str = "uniform",
    tol: float | None = None,
    title: str | None = None,
    open: bool = False,
) -> int:
    """Write a web page, one file, with a dial that moves through every optimal policy of a model.

    Args:
        model: An .npz file saved by MDP.save, a map in a text file, or a Gymnasium id that carries P (FrozenLake-v1).
        out: The file to write.
        gamma: Discount, 0.99 if not given; an .npz file has its own.
        default: What acts when the agent is lazy: uniform, optimal, second-best, an action, or an .npy file.
        tol: Proven error of the values, for models of more than a few thousand states; exact if not given.
        title: Of the page; the model's name if not given.
        open: Open the page in the browser.
    """
    if not out.parent.is_dir():
        raise FileNotFoundError(f"cannot write {out}: there is no folder {out.parent}.")
    source = load_model(model, gamma)
    _write_explorer(source, _path(source, default, tol), out, title)
    OUT.print(f"Explorer: {out.resolve()}", soft_wrap=True, highlight=False, markup=False)
    if open:
        webbrowser.open(out.resolve().as_uri())
    return 0


@dataclasses.dataclass(frozen=True)
class Everything:
    """Every experiment, with its own settings."""


# One subcommand per experiment, with the fields of its `Config` as options.
Which: Any = Union[
    (
        Annotated[Everything, tyro.conf.subcommand("all", description="Every experiment, with the paper's settings.")],
        *(
            Annotated[experiment.config, tyro.conf.subcommand(name, description=experiment.title)]
            for name, experiment in EXPERIMENTS.items()
        ),
    )
]


def reproduce_results(
    which: Which = Everything(),  # noqa: B008 (frozen)
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("reproduced"),
    fresh: bool = False,
    json: bool = False,
) -> int:
    """Make the tabular results of the paper, and ours: data, figures, and whether each claim holds.

    Interrupted, it goes on where it stopped. Exit code 1 if a claim does not hold.

    Args:
        which: The experiment; all of them if not given.
        out: Folder of the results.
        fresh: Make them again even if they are there.
        json: Print JSON.
    """
    if isinstance(which, Everything):
        chosen = {name: experiment.config() for name, experiment in EXPERIMENTS.items()}
    else:
        chosen = {name: which for name, experiment in EXPERIMENTS.items() if isinstance(which, experiment.config)}
    out.mkdir(parents=True, exist_ok=True)
    done: list[Outcome] = []
    with progress_bars() as bars:
        for name, config in chosen.items():
            task = bars.add_task(name, total=None)

            def tell(count: int, total: int, task: Any = task) -> None:
                bars.update(task, completed=count, total=total)

            done.append(reproduce(name, config, out, fresh=fresh, progress=tell))
            bars.update(task, total=1, completed=1, description=f"{name} (was there)" if done[-1].reused else name)
    path_is_new = any(outcome.experiment.name == "kdt-path" and not outcome.reused for outcome in done)
    if path_is_new or ("kdt-path" in chosen and not (out / EXPLORER).exists()):
        source = load_model("lazymdp/KeyDoorTreasure-v0")
        _write_explorer(source, _path(source, "uniform", None), out / EXPLORER, "Key-Door-Treasure")
    index = write_index(out)
    if json:
        results = {outcome.experiment.name: [dataclasses.asdict(claim) for claim in outcome.claims] for outcome in done}
        print_json({"index": str(index.resolve()), "claims": results})
    else:
        _show_claims(done)
        OUT.print(f"All of it: {index.resolve()}", soft_wrap=True, highlight=False, markup=False)
    return 0 if all(outcome.holds for outcome in done) else 1


def list_names(json: bool = False) -> int:
    """List what the other commands take: experiments, models, default policies.

    Args:
        json: Print JSON.
    """
    ids = [
        name
        for name, spec in gym.registry.items()
        if name.startswith("lazymdp/") or "toy_text" in str(spec.entry_point)
    ]
    names = {
        "experiments": {name: experiment.title for name, experiment in EXPERIMENTS.items()},
        "models": {
            **{name: "a Gymnasium environment" for name in ids if name != "Blackjack-v1"},  # carries no P
            "FILE.npz": "a model saved by MDP.save",
            "FILE": "a map of Key-Door-Treasure (S K D T A #) or Rivers & Bridges (S ~ = G) in a text file",
        },
        "defaults": {
            "uniform": "every action equally likely",
            "optimal": "an optimal policy of the base model; ties share",
            "second-best": "always the best action that is not optimal",
            "ACTION": "always this action, by name or number",
            "FILE.npy": "a table [S, A] of probabilities",
        },
    }
    if json:
        print_json(names)
        return 0
    for kind, entries in names.items():
        table = Table(kind, "", show_edge=False, box=None, header_style="bold", padding=(0, 2, 0, 0))
        for name, words in entries.items():
            table.add_row(name, words)
        OUT.print(table)
        OUT.print()
    return 0


_COMMANDS: dict[str, Callable[..., int]] = {
    "solve": solve,
    "path": path,
    "explore": explore,
    "reproduce": reproduce_results,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "list": list_names,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code. Errors are one line, unless `--debug` is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    if "--version" in given:
        OUT.print(f"lazymdp {lz.__version__}", highlight=False)
        return 0
    try:
        return tyro.extras.subcommand_cli_from_dict(
            _COMMANDS,
            prog="lazymdp",
            description="When is it worth taking over? Exact answers for one price of control, or for every price at "
            "once. --debug shows where an error came from, --version the version.",
            args=given or ["--help"],
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.CascadeSubcommandArgs,
                    tyro.conf.FlagCreatePairsOff),
        )  # fmt: skip
    except KeyboardInterrupt:
        ERR.print("Interrupted. What is complete is kept; the same command goes on from there.", style="bold")
        return INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, OverflowError) as error:
        if debug:
            raise
        ERR.print(f"[bold red]Error:[/] {escape(_one_line(error))}", soft_wrap=True, highlight=False)
        return 2


def entry_point() -> None:
    """What the installed command calls."""
    code = main()
    if code == INTERRUPTED:  # what was under way may be in the middle of native code: that is not waited for
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


# -- showing ---------------------------------------------------------------------------------------------------------


def _path(source: Source, default: str, tol: float | None) -> EtaPath:
    policy = lz.policies.named(source.mdp, default)
    with progress_bars() as bars:
        task = bars.add_task("every price", total=None)

        def tell(count: int, price: float) -> None:
            bars.update(task, description=f"{count} changes, eta {price:.3g}")

        found = lz.eta_path(source.mdp, policy, tol=tol, progress=tell)
        bars.update(task, total=1, completed=1)
    return found


def _write_explorer(source: Source, found: EtaPath, out: Path, title: str | None) -> None:
    write_text(out, lz.show.explorer(found, world=source.world, title=title or source.name))


def _show_claims(done: Sequence[Outcome]) -> None:
    table = Table("", "claim", "expected", "found", "holds", title="claims")
    for outcome in done:
        for place, claim in enumerate(outcome.claims):
            verdict = "[green]yes[/]" if claim.holds else "[bold red]NO[/]"
            name = outcome.experiment.name if place == 0 else ""
            table.add_row(name, claim.text, claim.expected, claim.found, verdict)
        table.add_section()
    OUT.print(table)


def _choice(mdp: lz.MDP, action: int) -> str:
    return "lazy" if action == mdp.n_actions else mdp.describe_action(action)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
