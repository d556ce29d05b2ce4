"""The sections of the report that do not move: moments, actions, return against control, and trust, as HTML.

Every text that comes from outside (names of agents, environments and actions, notes) goes through `escaped`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.explain.moments import Moment, distinct, state_of
from lazymdp.explain.rank import LABELS
from lazymdp.explain.recording import Recording
from lazymdp.explain.report_clips import thumbnail
from lazymdp.explain.report_words import Facts, hardly_follows, is_clear, number, percent, ranking_words

_MOST_ACTIONS = 12
_MOST_MOMENTS = 8
_CRITIC = {
    "td_error": "TD error on held-out episodes, root mean square",
    "value_spread": "Standard deviation of the values there",
    "correlation": "Correlation with Monte Carlo returns",
}
_REPLACE = (
    "The same share of the agent's own steps is handed to the default policy: those that a measure ranks highest, or "
    "random ones. The number is the difference between the two losses of return, averaged over the shares, with its "
    "95% interval over episodes. Around 0, the measure finds important steps no better than chance. More or fewer "
    "steps may be handed over in fact, because episodes change once steps are handed over: some visit important states "
    "more often, and steps that the agent leaves to the default policy anyway may be among them. The table has the "
    "shares; a measure that hands over many more steps than another has an advantage."
)
_GAP = (
    "The value of the best action minus the mean value under the default policy: what taking control is worth in this "
    "step. The agent takes control where it exceeds \u03b7."
)
_GAP_OF_CRITIC = (
    "The value of the agent's choice minus the mean value under the default policy, as the critic estimates them: what "
    "taking control is worth in this step. It is negative where the critic expects more of the default policy."
)


def escaped(text: object) -> str:
    """Returns text as ASCII HTML, safe inside elements and quoted attributes."""
    return html.escape(str(text)).encode("ascii", "xmlcharrefreplace").decode("ascii")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Returns a table; the cells are HTML, and the first cell of each row is its heading."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{cells[0]}</th>{"".join(f"<td>{cell}</td>" for cell in cells[1:])}</tr>' for cells in rows
    )
    caption = f'<caption class="unseen">{caption}</caption>'
    return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def gap_words(about: Mapping[str, Any]) -> str:
    """Returns what the lazy-gap of a recording means, as plain text."""
    return _GAP_OF_CRITIC if about.get("critic") else _GAP


# -- moments -----------------------------------------------------------------------------------------------------------


def moments_section(recording: Recording, facts: Facts, steps: Sequence[Mapping[str, NDArray[Any]]]) -> str:
    """Returns the list of moments, each a button that moves the playback there."""
    if not facts.moments:
        return (
            '<p class="muted">The agent has no values, so there are no lazy-gaps to rank its moments by. '
            '<code>lz.explain.record(..., critic="fit")</code> estimates them.</p>'
        )
    shown = distinct(recording, facts.moments, steps, _MOST_MOMENTS)
    items = [_moment(recording, rank, moments, steps) for rank, moments in enumerate(shown, 1)]
    trust = ranking_words(recording.about)
    lead = f'<p class="muted small">{escaped(trust)}</p>' if trust else ""
    return f'{lead}<ol class="moments">{"".join(items)}</ol>'


def _moment(
    recording: Recording, rank: int, moments: Sequence[Moment], steps: Sequence[Mapping[str, NDArray[Any]]]
) -> str:
    moment, names = moments[0], recording.about["action_names"]
    columns = steps[moment.episode]
    control, action = bool(columns["control"][moment.step]), names[int(columns["action"][moment.step])]
    picture = ""
    if recording.has_frames:
        source = thumbnail(recording.frame(moment.episode, moment.step), control)
        picture = f'<img src="{source}" alt="">'
    place = f"step {moment.step:,}" if recording.episodes == 1 else f"episode {moment.episode}, step {moment.step:,}"
    if len(moments) > 1:
        same = "frame" if recording.has_frames else "state"
        place += f"; the same {same} and choice {_elsewhere(moment, moments[1:])}"
    state = state_words(recording.about, columns, moment.step)
    default_policy = default_words(columns["default_probability"][moment.step], names)
    share = (
        f'<span class="muted small">{percent(moment.share)} of the gain of the episode</span>'
        if moment.share > 0
        else ""
    )
    return (
        f'<li><button type="button" class="moment" data-episode="{moment.episode}" data-step="{moment.step}">'
        f'{picture}<span class="what"><span class="rank">{rank}</span>'
        f'<i class="swatch {"control" if control else "lazy"}"></i><b>{escaped(action)}</b></span>'
        f'<span class="muted small">{place}</span>{state and f"<span>{escaped(state)}</span>"}'
        f'<span>lazy-gap <b class="gap">{number(moment.gap)}</b></span>{share}'
        f'<span class="muted small">Default policy: {escaped(default_policy)}</span>'
        f"{_followed(recording.about, moment)}</button></li>"
    )


def state_words(about: Mapping[str, Any], columns: Mapping[str, NDArray[Any]], step: int) -> str:
    """Returns the name of the state before a step, or an empty text if the recording does not know it."""
    state, names = state_of(columns, step), about.get("state_names")
    return "" if state is None or names is None else str(names[int(state)])


def _elsewhere(moment: Moment, others: Sequence[Moment]) -> str:
    """Returns where else a moment was met: the steps, or their number if there are more than two."""
    if len(others) > 2:
        return f"at {len(others)} other moments"
    steps = [
        f"{each.step:,}" if each.episode == moment.episode else f"{each.step:,} of episode {each.episode}"
        for each in others
    ]
    return f"at step {' and at step '.join(steps)}"


def _followed(about: Mapping[str, Any], moment: Moment) -> str:
    """Returns what followed in the replays of a moment, or nothing if it was not replayed."""
    for row in about.get("counterfactuals") or ():
        if (row.get("episode", 0), row["step"]) == (moment.episode, moment.step) and row["return_agent"] is not None:
            doubt = "" if is_clear(row) else ' <span class="muted">(no clear difference)</span>'
            own, other = number(row["return_agent"]), number(row["return_default"])
            return (
                f'<span class="small">Return if the default policy takes this step: <b>{other}</b>; with the '
                f"agent&rsquo;s choice: <b>{own}</b>{doubt}</span>"
            )
    return ""


def default_words(probabilities: NDArray[np.float64], names: Sequence[str]) -> str:
    """Returns what the default policy would have done, with its probabilities.

    >>> default_words(np.array([0.25, 0.25, 0.25, 0.25]), ["up", "right", "down", "left"])
    'any of the 4 actions, 25% each'
    >>> default_words(np.array([0.0, 0.9, 0.1, 0.0]), ["up", "right", "down", "left"])
    'right 90%, down 10%'
    """
    if not np.isfinite(probabilities).all():
        return "unknown"
    if len(names) > 1 and np.ptp(probabilities) < 1e-9:
        return f"any of the {len(names)} actions, {percent(float(probabilities[0]))} each"
    order = [int(action) for action in np.argsort(-probabilities, kind="stable") if probabilities[action] > 0]
    if len(order) == 1:
        return f"always {names[order[0]]}"
    listed = [f"{names[action]} {percent(float(probabilities[action]))}" for action in order[:3]]
    left = float(sum(probabilities[action] for action in order[3:]))
    return ", ".join(listed + ([f"others {percent(left)}"] if left > 0 else []))


def followed_section(about: Mapping[str, Any]) -> str:
    """Returns the table of what would have followed, or nothing if the recording has no replays."""
    rows = []
    for row in about.get("counterfactuals") or ():
        cells = ["", "", ""]  # of a moment that could not be replayed
        if row["return_agent"] is not None:
            own, other = row["return_agent"], row["return_default"]
            cells = [number(own), number(other), number(own - other) + _interval(row)]
        place = f"Episode {row['episode']}, step {row['step']:,}" if "episode" in row else f"Step {row['step']:,}"
        rows.append([place, *cells, escaped(row.get("note") or "")])
    if not rows:
        return ""
    heads = ["Moment", "Return with the agent", "Return with the default policy", "Difference (95% interval)", "Note"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    prices = " The lazy-gap also counts the prices that are paid later; these returns do not." if about["eta"] else ""
    return (
        '<h3>What would have followed</h3><p class="muted small">The moments were replayed several times from the same '
        "state: with the choice of the agent, and with the default policy in its place for one step. Returns are mean "
        f"sums of the rewards from there on, discounted.{prices}</p>"
        "<details><summary>All replays, with intervals</summary>"
        + table(heads, rows, "What would have followed at the largest moments")
        + "</details>"
    )


# -- actions -----------------------------------------------------------------------------------------------------------


def actions_section(about: Mapping[str, Any], steps: Sequence[Mapping[str, NDArray[Any]]]) -> str:
    """Returns bars: how often each action is taken in control, against the default policy at the same steps."""
    names = about["action_names"]
    control = np.concatenate([np.asarray(columns["control"], dtype=bool) for columns in steps])
    if not control.any():
        return '<p class="muted">It never takes control in this recording.</p>'
    actions = np.concatenate([columns["action"] for columns in steps])[control]
    defaults = np.concatenate([columns["default_probability"] for columns in steps])[control]
    shares = np.bincount(actions.astype(int), minlength=len(names)) / len(actions)
    default_shares = defaults.mean(axis=0)
    shown = sorted(np.argsort(-shares, kind="stable")[:_MOST_ACTIONS].tolist())
    widest = max(float(np.nanmax([*shares[shown], *default_shares[shown]])), 1e-9)
    rows = "".join(_bars(names[a], float(shares[a]), float(default_shares[a]), widest) for a in shown)
    rest = ""
    if len(names) > len(shown):
        left = max(1 - float(shares[shown].sum()), 0.0)
        rest = f'<p class="muted small">{len(names) - len(shown)} more actions make up the other {percent(left)}.</p>'
    return (
        '<p class="legend small muted"><i class="swatch control"></i>the agent, in control '
        '<i class="swatch lazy"></i>the default policy, at the same steps</p>'
        f'<ul class="bars">{rows}</ul>{rest}'
    )


def _bars(name: str, share: float, default_share: float, widest: float) -> str:
    bars = "".join(
        f'<span class="bar {kind}"><i style="width:{100 * part / widest:.2f}%"></i><span>{percent(part)}</span></span>'
        for kind, part in (("control", share), ("lazy", default_share))
        if np.isfinite(part)
    )
    return f'<li><span class="name">{escaped(name)}</span><span class="pair">{bars}</span></li>'


# -- return against control, and trust ---------------------------------------------------------------------------------


def frontier_rows(about: Mapping[str, Any]) -> list[dict[str, float | None]]:
    """Returns the points of the curve of return against control, the default policy alone first, then by price."""
    rows = about.get("frontier") or []
    names = ("eta", "return", "low", "high", "control_rate")
    found = [{name: None if row.get(name) is None else float(row[name]) for name in names} for row in rows]
    return sorted(found, key=lambda row: (row["eta"] is not None, -(row["eta"] or 0.0)))


def frontier_section(about: Mapping[str, Any]) -> str:
    """Returns the place of the curve and the table of its numbers."""
    rows = frontier_rows(about)
    cells = [
        [
            "default policy alone" if row["eta"] is None else number(row["eta"]),
            "" if row["return"] is None else number(row["return"]) + _interval(row),
            percent(row["control_rate"] or 0.0),
        ]
        for row in rows
    ]
    heads = ["Price &eta;", "Return", "Steps in control"]
    note = (
        '<p class="muted small">At price 0, the agent acts in every step; at others, only where the lazy-gap of its '
        "critic exceeds the price.</p>"
    )
    return (
        '<div class="plot frontier" role="img" aria-label="Return against the share of steps in control, one point for '
        'each price; the table below has the numbers"></div><details><summary>The numbers</summary>'
        + table(heads, cells, "Return and share of steps in control by price")
        + "</details>"
        + (note if rows and about.get("critic") else "")
    )


def trust_section(about: Mapping[str, Any]) -> str:
    """Returns how far the ranking and the values can be trusted, as far as the recording says."""
    parts = []
    if about.get("fidelity"):
        parts.append(_fidelity(sorted(about["fidelity"], key=lambda row: -row["replace_area"])))
        parts.append(f'<details><summary>How it is measured</summary><p class="small">{_REPLACE}</p></details>')
    else:
        reason = about.get("no_fidelity") or (
            "lazymdp fidelity measures how much return is lost when the steps ranked highest are handed to the default "
            "policy, against random steps."
        )
        parts.append(f'<p class="muted">The fidelity of this ranking has not been measured. {escaped(reason)}</p>')
    if about.get("critic"):
        parts.append(_critic(about["critic"]))
    return "".join(parts)


def _fidelity(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of the fidelity of each measure, with the shares of the steps that were handed over."""
    heads = ["Ranking by", "Loss of return beyond that of random steps; larger is better"]
    cells = [
        [escaped(LABELS.get(row["measure"], row["measure"])), f"{number(row['replace_area'])}{_interval(row)}"]
        for row in rows
    ]
    if all("handed" in row for row in rows):  # older recordings do not know it
        heads.append(f"Steps in fact handed over, of {_shares(rows[0]['shares'])}")
        cells = [[*cell, _shares(row["handed"])] for cell, row in zip(cells, rows, strict=True)]
        cells.append(["random steps", "0", _shares(rows[0]["handed_random"])])
    return table(heads, cells, "Fidelity of each ranking")


def _shares(shares: Sequence[float]) -> str:
    """Returns shares as text: `10%, 20% and 40%`."""
    *some, last = map(percent, shares)
    return f"{', '.join(some)} and {last}" if some else last


def _critic(critic: Mapping[str, Any]) -> str:
    """Returns how good the critic is, by its own numbers on held-out episodes."""

    def fact(name: str) -> str:
        value = critic[name]
        text = "undefined" if value is None else number(value) if isinstance(value, int | float) else str(value)
        return f"<div><dt>{escaped(_CRITIC.get(name, name.replace('_', ' ')))}</dt><dd>{escaped(text)}</dd></div>"

    main = "".join(fact(name) for name in _CRITIC if name in critic)
    rest = "".join(fact(name) for name in critic if name not in _CRITIC)
    doubt = ""
    if hardly_follows(critic.get("correlation")):
        doubt = "<p><b>Its values hardly follow the returns, so the moments on this page mean little.</b></p>"
    return (
        '<h3>The critic</h3><p class="muted small">The agent has no values of its own: a critic was fitted to it. '
        f"The lazy-gaps are only as good as the critic.</p>{doubt}<dl>{main}</dl>"
        + (f"<details><summary>How it was fitted</summary><dl>{rest}</dl></details>" if rest else "")
    )


def _interval(row: Mapping[str, Any]) -> str:
    if row.get("low") is None or row.get("high") is None:
        return ""
    return f' <span class="muted">({number(row["low"])} to {number(row["high"])})</span>'
