"""The report: a recording as one HTML page, with its video, its timelines, and the moments that matter.

The page is self-contained: it loads nothing from the network, and its videos are inside it. It is assembled from the
files in `page`; the same recording gives the same page.
"""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._colors import DARK_THEME, LIGHT_THEME, css_variables
from lazymdp._files import replacing
from lazymdp._html_page import as_json, asset, filled, packed
from lazymdp.explain.recording import Recording, check_recording
from lazymdp.explain.report_clips import clip
from lazymdp.explain.report_sections import (
    actions_section,
    escaped,
    followed_section,
    frontier_rows,
    frontier_section,
    gap_words,
    moments_section,
    trust_section,
)
from lazymdp.explain.report_words import Facts, facts_of, number, rate_words, summary

_MOST_BYTES = 8e6
"""Size of all videos and timelines on the page, as base64; browsers and mail servers dislike larger pages."""
_BASE64 = 4 / 3
_COLUMNS = ("action", "choice", "control", "reward", "price", "value", "lazy_gap", "default_probability")


def report(recording: Recording, path: str | os.PathLike[str], *, against: Recording | None = None) -> None:
    """Writes a page that shows when an agent acts, which moments matter, and how far to trust it.

    The page holds a summary, the video of the recording with timelines of lazy-gap, value, reward and control, the
    largest moments, the actions that the agent takes, and, if the recording has them, return against control over
    prices, replays with the default policy, and the fidelity of the ranking. It holds about 8 MB of videos and
    timelines at most, and says which episodes it leaves out.

    Args:
        recording: The recording; at least one episode.
        path: Path of the page, which is overwritten.
        against: A second recording, to show side by side with the first.
    """
    recordings = [recording] if against is None else [recording, against]
    for name, given in zip(("recording", "against"), recordings, strict=False):
        check_whole(given, name)
    with replacing(path) as temporary:  # raises an error now, not after the video is encoded
        temporary.touch()
        temporary.write_text(_page(recordings), encoding="ascii")


def check_whole(recording: Recording, name: str) -> None:
    """Raises an error if a recording has nothing to show."""
    if check_recording(recording, name).episodes == 0:
        raise ValueError(f"{name} ({recording.folder}) has no whole episode: record at least one.")


def _page(recordings: list[Recording]) -> str:
    names, most_bytes = _names(recordings), _MOST_BYTES / len(recordings)
    agents = [_Agent.read(*given, most_bytes) for given in zip(recordings, "ab", names, strict=False)]
    title = f"{names[0]} in {recordings[0].about['env']}" if len(names) == 1 else f"{names[0]} and {names[1]}"
    parts = {
        "TITLE": escaped(title),
        "LEAD": "" if len(agents) == 1 else _comparison(recordings, names, [agent.facts for agent in agents]),
        "COUNT": str(len(agents)),
        "ARTICLES": "".join(agent.article for agent in agents),
        "LIGHT": css_variables(LIGHT_THEME),
        "DARK": css_variables(DARK_THEME),
        "DATA": as_json([agent.data for agent in agents]),
        "VIDEOS": "".join(agent.videos for agent in agents),
        "CSS": _template("report.css"),
        "TIMELINES_JS": _template("timelines.js"),
        "JS": _template("report.js"),
        "UPLOT_CSS": asset("uPlot.min.css"),
        "UPLOT_JS": asset("uPlot.iife.min.js"),
        "UPLOT_LICENSE": asset("uPlot.LICENSE").strip(),
    }
    return filled(_template("report.html"), parts)


def _template(name: str) -> str:
    return asset(name, package="lazymdp.explain", folder="page")


def _names(recordings: list[Recording]) -> list[str]:
    """Returns the names of the agents, with their prices, and if need be their order, if the names are the same."""
    names = [str(each.about["agent"]) for each in recordings]
    if len(names) == len(set(names)):
        return names
    etas = [each.about["eta"] for each in recordings]
    prices = ["without a price" if eta is None else f"at price {number(eta)}" for eta in etas]
    names = [f"{name} {price}" for name, price in zip(names, prices, strict=True)]
    return names if names[0] != names[1] else [f"{names[0]} (first)", f"{names[1]} (second)"]


def _comparison(recordings: list[Recording], names: list[str], facts: list[Facts]) -> str:
    """Returns one paragraph that compares two recordings."""
    said = [
        f"{name} {rate_words(found.control_rate)} and earns a return of {number(float(np.mean(found.returns)))}"
        for name, found in zip(names, facts, strict=True)
    ]
    same = recordings[0].about["env"] == recordings[1].about["env"]
    place = f"Both play {recordings[0].about['env']}." if same else "They play different environments."
    return f'<p class="lead">{escaped(f"{place} {said[0]}; {said[1]}.")}</p>'


@dataclass(frozen=True)
class _Agent:
    """One recording on the page.

    Attributes:
        article: HTML of its column.
        data: Data that report.js reads.
        videos: Script elements with the videos in base64.
        facts: The numbers that its summary states.
    """

    article: str
    data: dict[str, Any]
    videos: str
    facts: Facts

    @classmethod
    def read(cls, recording: Recording, key: str, name: str, most_bytes: float) -> _Agent:
        """Reads a recording; `key` and `name` tell it from another one on the page."""
        about, numbers = recording.about, range(recording.episodes)
        steps = [_needed(recording.steps(episode)) for episode in numbers]
        fps = float(about["frames_per_second"])
        facts = facts_of(steps, [recording.summary(episode) for episode in numbers], fps)
        per_step = 21 if about.get("state_names") else 17  # bytes: three floats, an action, a state if known, a flag
        kept, left = _kept(facts, per_step, most_bytes)
        order = sorted(kept, key=lambda episode: episode != facts.start)
        videos, covered = _videos(recording, steps, order, left, fps)
        acts, earns = summary(about, facts, steps)
        states = _visited_names(about, steps)
        data = {
            "key": key,
            "fps": fps,
            "eta": about["eta"],
            "actionNames": about["action_names"],
            "stateNames": states,
            "start": kept.index(facts.start),
            "frontier": frontier_rows(about),
            "episodes": [
                {
                    "number": episode,
                    "return": facts.returns[episode],
                    "covered": covered.get(episode, 0),
                    "gap": packed(steps[episode]["lazy_gap"], "f4"),
                    "value": packed(steps[episode]["value"], "f4"),
                    "reward": packed(steps[episode]["reward"], "f4"),
                    "control": packed(steps[episode]["control"], "u1"),
                    "action": packed(steps[episode]["action"], "i4"),
                    **({"state": packed(steps[episode]["observation"][:, 0], "i4")} if states else {}),
                }
                for episode in kept
            ],
        }
        parts = {
            "KEY": key,
            "AGENT": escaped(name),
            "FACTS": escaped(_facts_line(about, facts)),
            "ACTS": escaped(" ".join(acts)),
            "EARNS": escaped(" ".join(earns)),
            "GAP": escaped(gap_words(about)),
            "NOTE": escaped(_left_out(recording, facts, kept, covered)),
            "HAS_VIDEO": "true" if covered else "false",
            "MOMENTS": moments_section(recording, facts, steps),
            "FOLLOWED": followed_section(about),
            "ACTIONS": actions_section(about, steps),
            "FRONTIER": frontier_section(about),
            "NO_FRONTIER": "" if about.get("frontier") else "hidden",
            "TRUST": trust_section(about),
        }
        texts = [
            f'<script type="text/plain" id="video-{key}-{episode}">{text}</script>' for episode, text in videos.items()
        ]
        return cls(filled(_template("agent.html"), parts), data, "\n".join(texts), facts)


def _needed(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns the columns that the page uses; observations, if not single numbers, and values can be much larger."""
    has_states = "observation" in columns and columns["observation"].shape[1] == 1
    return {name: columns[name] for name in (*_COLUMNS, *(["observation"] if has_states else []))}


def _visited_names(about: Mapping[str, Any], steps: list[dict[str, NDArray[Any]]]) -> dict[int, str] | None:
    """Returns the names of the states that were met, or None if the observations are no states with names."""
    names = about.get("state_names")
    if not names:
        return None
    met = np.unique(np.concatenate([columns["observation"] for columns in steps])).astype(int).tolist()
    return {state: names[state] for state in met}


def _kept(facts: Facts, per_step: int, most_bytes: float) -> tuple[list[int], float]:
    """Returns the episodes whose timelines are on the page, and the number of bytes left for videos.

    The episode that the page opens comes first and is always kept. Timelines take a quarter of the size at most.
    """
    order = [facts.start, *(episode for episode in range(len(facts.lengths)) if episode != facts.start)]
    kept: list[int] = []
    used = 0.0
    for episode in order:
        size = _BASE64 * per_step * facts.lengths[episode]
        if not kept or used + size <= most_bytes / 4:
            kept.append(episode)
            used += size
    return sorted(kept), max(most_bytes - used, 0.0)


def _videos(
    recording: Recording, steps: list[dict[str, NDArray[Any]]], order: list[int], most_bytes: float, fps: float
) -> tuple[dict[int, str], dict[int, int]]:
    """Returns the videos in base64, and how many steps each shows, by episode.

    The first episode of `order` may take all the space, and its video is cut short if it must be. Another episode has a
    video only if all of it fits.
    """
    videos: dict[int, str] = {}
    covered: dict[int, int] = {}
    for episode in order if recording.has_frames else ():
        control = np.asarray(steps[episode]["control"], dtype=bool)
        used = sum(map(len, videos.values()))
        if videos and used + used / sum(covered.values()) * len(control) > 1.2 * most_bytes:
            continue  # by the size per step so far, it would not fit: do not encode it
        frame = functools.partial(recording.frame, episode)
        video, count = clip(frame, control, fps, (most_bytes - used) / _BASE64, whole=bool(videos))
        if count:
            videos[episode], covered[episode] = base64.b64encode(video).decode("ascii"), count
        elif not videos:
            break
    recording.close()
    return videos, covered


def _facts_line(about: Mapping[str, Any], facts: Facts) -> str:
    price = "no price" if about["eta"] is None else f"price \u03b7 = {number(about['eta'])}"
    episodes = f"{len(facts.lengths)} episode{'' if len(facts.lengths) == 1 else 's'}"
    return " \u00b7 ".join(
        [about["env"], f"default policy: {about['default_policy']}", price, episodes, f"{sum(facts.lengths):,} steps"]
    )


def _left_out(recording: Recording, facts: Facts, kept: list[int], covered: dict[int, int]) -> str:
    """Returns what the page leaves out to stay small, in sentences; an empty text if nothing."""
    said = []
    if len(kept) < recording.episodes:
        said.append(f"The page has timelines of {len(kept)} of {recording.episodes} episodes, to stay small.")
    if not recording.has_frames:
        said.append("The recording has no frames, so there is no video.")
    elif not covered:
        said.append("The video is too large for this page: lz.explain.video writes it to a file.")
    else:
        if len(covered) < len(kept):
            said.append(f"It has videos of {len(covered)} of these {len(kept)} episodes.")
        said += [
            f"The video of episode {episode} stops at step {count:,} of {facts.lengths[episode]:,}."
            for episode, count in covered.items()
            if count < facts.lengths[episode]
        ]
    return " ".join(said)
