"""The commands that explain agents: `lazymdp explain`, and its parts `record | strip | video | fidelity`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import lazymdp as lz
from lazymdp._progress import progress_bars, say
from lazymdp.cli.evaluate import Plot, check_plot, draw
from lazymdp.cli.output import INTERRUPTED, print_json, show_facts, show_line, show_table
from lazymdp.cli.signals import terminated_like_interrupted
from lazymdp.explain.rank import LABELS
from lazymdp.measure.fidelity import KINDS

_arg = tyro.conf.arg

Agent = Annotated[str, tyro.conf.Positional, _arg(metavar="AGENT")]
Env = Annotated[str | None, tyro.conf.Positional, _arg(metavar="[ENV]", help_behavior_hint="")]
Folder = Annotated[Path, tyro.conf.Positional, _arg(metavar="RECORDING")]
Number = Annotated[int | None, _arg(metavar="N", help_behavior_hint="")]
Price = Annotated[float | None, _arg(metavar="PRICE", help_behavior_hint="")]
Policy = Annotated[str | None, _arg(metavar="POLICY", help_behavior_hint="")]
Discount = Annotated[float | None, _arg(metavar="GAMMA", help_behavior_hint="")]
Fit = Annotated[Literal["fit"] | None, _arg(metavar="fit", help_behavior_hint="")]
Flag = Annotated[bool, _arg(help_behavior_hint="")]
Measure = Annotated[str, _arg(metavar="MEASURE")]


def explain(
    agent: Agent,
    env: Env = None,
    out: Annotated[Path, _arg(aliases=["-o"], metavar="FILE")] = Path("report.html"),
    eta: Price = None,
    episodes: int = 3,
    moments: int = 8,
    seed: int = 0,
    max_steps: Number = None,
    default_policy: Policy = None,
    gamma: Discount = None,
    critic: Fit = None,
    against: Annotated[Path | None, _arg(metavar="RECORDING", help_behavior_hint="")] = None,
    recording: Annotated[Path | None, _arg(metavar="FOLDER", help_behavior_hint="")] = None,
    trust: Flag = False,
) -> int:
    """Explain an agent on one page: when it acts, which moments matter, and how far to trust the ranking.

    Args:
        agent: The folder of a run; a model, as for `lazymdp solve`, whose exact solution acts (give --eta); a .zip file
            of Stable-Baselines3 or module:object, a callable or an object with predict (give --trust).
        env: The id of the environment; by default that of the run or of the model. A saved model is played as it is.
        out: The HTML file to write.
        eta: Price of taking control; required for a dial and for a model.
        episodes: Number of episodes to record.
        moments: Number of moments that are replayed with the default policy.
        seed: Random seed.
        max_steps: Number of steps after which an episode is truncated.
        default_policy: Default policy of an agent that has none of its own; by default uniform.
        gamma: Discount factor of a model or a critic; by default 0.99.
        critic: `fit` estimates the values of an agent that has none, by evaluating its policy; the default here.
        against: A recording of another agent, to show side by side; one of `explain --recording` is complete.
        recording: Keep the recording in this folder, with everything that the page shows.
        trust: Allow code to run that the agent names: modules, or pickles (Stable-Baselines3 models).
    """
    with _showing() as show:
        lz.explain.explain(
            agent, env, path=out, folder=recording, episodes=episodes, eta=eta, seed=seed, max_steps=max_steps,
            default_policy=default_policy, gamma=gamma, critic=critic, moments=moments, against=against, trust=trust,
            progress=show,
        )  # fmt: skip
    show_line(f"Report: {out.resolve()}")
    return 0


def fidelity(
    agent: Agent,
    env: Env = None,
    mode: Literal["replace", "keep"] = "replace",
    plot: Plot = None,
    eta: Price = None,
    episodes: int = 20,
    seed: int = 0,
    default_policy: Policy = None,
    gamma: Discount = None,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Measure how much return is lost when the most important steps of an agent are handed to the default policy.

    Args:
        agent: The agent, in any form that `lazymdp explain` accepts.
        env: The id of the environment; by default that of the run or of the model. A saved model is played as it is.
        mode: `replace` hands the most important steps to the default policy, `keep` all others.
        plot: Also draw the losses over the share of the steps into this file (PNG, SVG or PDF).
        eta: Price of taking control; required for a dial and for a model.
        episodes: Episodes for each measure and share of the steps.
        seed: Random seed.
        default_policy: Default policy of an agent that has none of its own; by default uniform.
        gamma: Discount factor of a model or a critic; by default 0.99.
        trust: Allow code to run that the agent names: modules, or pickles (Stable-Baselines3 models).
        json: Print JSON.
    """
    check_plot(plot)
    with _showing() as show:
        found = lz.explain.ranking_trust(
            agent, env, mode=mode, eta=eta, episodes=episodes, seed=seed, default_policy=default_policy, gamma=gamma,
            trust=trust, progress=lambda *did: show("handing steps over", *did),
        )  # fmt: skip
    areas = {name: curves.area() for name, curves in found.items()}
    if plot is not None:
        draw(lambda: _fidelity_figure(found), plot)
    if json:
        names = ("mean", "low", "high")
        print_json([
            {"measure": name, "mode": mode, "shares": curves.shares.tolist(),
             **{f"area_{part}": float(getattr(areas[name], part)) for part in names},
             **{f"loss_{kind}": curves.loss(kind).mean.tolist() for kind in KINDS},
             **{f"handed_{kind}": curves.handed[kind].tolist() for kind in KINDS}}
            for name, curves in found.items()
        ])  # fmt: skip
        return 0
    cells = [
        [LABELS[name], f"{area.mean:.4g}", f"[{area.low:.4g}, {area.high:.4g}]", _percents(found[name].handed["top"])]
        for name, area in sorted(areas.items(), key=lambda item: -item[1].mean)
    ]
    any_curves = next(iter(found.values()))
    cells.append(["random steps", "0", "", _percents(any_curves.handed["random"])])
    if mode == "replace":
        title = "Loss of return if the top steps are handed over, beyond that of random steps; larger is better"
    else:
        title = "Return saved by acting at the top steps only, compared with random steps; larger is better"
    title += f". Last column: steps in fact handed over, for the top {_percents(any_curves.shares)} %"
    show_table(["ranking by", "loss" if mode == "replace" else "saved", "95% interval", "handed over, %"], cells, title)
    return 0


def _percents(shares: Iterable[float]) -> str:
    """Return shares as percentages in one cell: `5 / 10 / 20`."""
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def _fidelity_figure(found: dict[str, Any]) -> Any:
    """Draw the curves of each measure side by side."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 3.4), sharey=True)
    for ax, (name, curves) in zip(axes, found.items(), strict=True):
        lz.show.fidelity(curves, measure=LABELS[name], ax=ax)
    return figure


def record(
    agent: Agent,
    env: Env = None,
    out: Annotated[Path, _arg(aliases=["-o"], metavar="FOLDER")] = Path("recording"),
    eta: Price = None,
    episodes: int = 1,
    seed: int = 0,
    max_steps: Number = None,
    default_policy: Policy = None,
    gamma: Discount = None,
    critic: Fit = None,
    mask: Fit = None,
    mask_steps: int = 50_000,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Play whole episodes with an agent, and record what it saw, did and thought in every step.

    Args:
        agent: The folder of a run; a model, as for `lazymdp solve`, whose exact solution acts (give --eta); a .zip file
            of Stable-Baselines3 or module:object, a callable or an object with predict (give --trust).
        env: The id of the environment; by default that of the run or of the model. A saved model is played as it is.
        out: Folder for the recording.
        eta: Price of taking control; required for a dial and for a model.
        episodes: Number of episodes.
        seed: Random seed of the first episode; the others have the following seeds.
        max_steps: Number of steps after which an episode is truncated; by default the limit of the environment, and at
            most 27,000.
        default_policy: Default policy of an agent that has none of its own; by default uniform.
        gamma: Discount factor of a model or a critic; by default 0.99.
        critic: `fit` estimates the values of an agent that has none, by evaluating its policy.
        mask: `fit` trains a network to blind the agent where that costs no return, for --by mask.
        mask_steps: Steps that are played to train the mask.
        trust: Allow code to run that the agent names: modules, or pickles (Stable-Baselines3 models).
        json: Print JSON.
    """
    with _showing() as show:
        try:
            made = lz.explain.record(
                agent, env, folder=out, episodes=episodes, eta=eta, seed=seed, max_steps=max_steps,
                default_policy=default_policy, gamma=gamma, critic=critic, mask=mask, mask_steps=mask_steps,
                trust=trust, progress=show,
            )  # fmt: skip
        except KeyboardInterrupt:
            if (out / "recording.json").is_file():
                count = lz.explain.load(out).episodes
                say(f"Interrupted. {count} whole episode{'s' * (count != 1)} in {out}.")
            return INTERRUPTED
    _show(made, json)
    return 0


def strip(
    recording: Folder,
    out: Annotated[Path, _arg(aliases=["-o"], metavar="FILE")] = Path("strip.png"),
    frames: int = 8,
    steps: Annotated[tuple[int, ...] | None, _arg(metavar="STEP [STEP ...]", help_behavior_hint="")] = None,
    episode: Number = None,
    columns: Number = None,
    by: Measure = "lazy_gap",
    title: Annotated[str | None, _arg(metavar="TEXT", help_behavior_hint="")] = None,
) -> int:
    """Draw a film strip: frames around the most important moments, control in color and lazy steps in gray.

    Args:
        recording: Folder of a recording.
        out: The PNG file to write.
        frames: Number of frames.
        steps: Show these steps instead of choosing them.
        episode: The episode; by default the one with the most important moment, or the first with --steps.
        columns: Frames per row; by default as many as fit.
        by: Measure of importance: lazy_gap, critical_eta, action_gap, importance_advice, highlights, entropy, mask or
            random.
        title: Title; by default the environment and the price.
    """
    shown = lz.explain.strip(
        lz.explain.load(recording),
        out,
        steps=steps,
        episode=episode,
        frames=frames,
        columns=columns,
        by=by,
        title=title,
    )
    listed = ", ".join(str(step) for _, step in shown)
    show_line(f"Steps {listed} of episode {shown[0][0]}: {out.resolve()}")
    return 0


def video(
    recording: Folder,
    out: Annotated[Path, _arg(aliases=["-o"], metavar="FILE")] = Path("video.mp4"),
    episode: Number = None,
    frames_per_second: Annotated[float | None, _arg(metavar="N", help_behavior_hint="")] = None,
) -> int:
    """Make an annotated video: control in color and lazy steps in gray, above a timeline of the lazy-gap.

    Args:
        recording: Folder of a recording.
        out: The MP4 file to write.
        episode: The episode; by default all, one after the other.
        frames_per_second: Speed; by default that of the environment.
    """
    loaded = lz.explain.load(recording)
    with _showing() as show:
        lz.explain.video(
            loaded, out, episode=episode, frames_per_second=frames_per_second,
            progress=lambda done, total: show(f"frame {done:,} of {total:,}", done, total),
        )  # fmt: skip
    show_line(f"Video: {out.resolve()}")
    return 0


def _show(made: lz.explain.Recording, json: bool) -> None:
    """Print what was recorded."""
    summaries = [made.summary(episode) for episode in range(made.episodes)]
    controls = [float(made.steps(episode)["control"].sum()) for episode in range(made.episodes)]
    steps = sum(summary["length"] for summary in summaries)
    facts: dict[str, Any] = {
        "agent": made.about["agent"],
        "env": made.about["env"],
        "eta": made.about["eta"],
        "episodes": made.episodes,
        "steps": steps,
        "mean_return": sum(summary["return"] for summary in summaries) / made.episodes,
        "control_rate": sum(controls) / steps,
        **{f"critic_{name}": fact for name, fact in made.about.get("critic", {}).items()},
        **{f"mask_{name}": fact for name, fact in made.about.get("mask", {}).items()},
    }
    if json:
        print_json({**facts, "recording": str(made.folder.resolve()), "per_episode": summaries})
        return
    show_facts({name: "none" if fact is None else fact for name, fact in facts.items()})
    show_line(f"Recording: {made.folder.resolve()}")


@contextmanager
def _showing() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows what is being done; warnings are plain lines, without the place in the code."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # images need no screen, and SDL complains where there is none
    with terminated_like_interrupted(), progress_bars() as bars, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"Warning: {message}")
        task = bars.add_task("preparing", total=None)
        yield lambda what, done, total: bars.update(task, completed=done, total=total, description=what)
