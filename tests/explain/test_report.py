"""The report as a file: what it states, what it embeds, and the errors it raises."""

import base64
import json
import re
import subprocess
from importlib import import_module, resources

import numpy as np
import pytest
from recordings import EXTRAS, about, describe, key_door, synthetic

import lazymdp as lz
from lazymdp.explain.moments import Moment, moments_of
from lazymdp.explain.recording import RecordingWriter
from lazymdp.explain.report_sections import _elsewhere

MODULE = import_module("lazymdp.explain.report")  # `lz.explain.report` is the function


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return key_door(tmp_path_factory.mktemp("recordings") / "key_door", episodes=2, eta=0.025)


@pytest.fixture(scope="module")
def page(recording, tmp_path_factory):
    return written(recording, tmp_path_factory.mktemp("pages"))


def written(recording, folder, **options):
    lz.explain.report(recording, folder / "report.html", **options)
    return (folder / "report.html").read_text(encoding="ascii")


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def array_of(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype="<" + packed["type"])


def videos_of(page):
    found = re.findall(r'<script type="text/plain" id="video-(\w+)-(\d+)">(.*?)</script>', page)
    return {(key, int(episode)): base64.b64decode(text) for key, episode, text in found}


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL))


# -- the file ------------------------------------------------------------------------------------------------------


def test_the_page_is_one_document_that_loads_nothing(page):
    assert page.startswith("<!doctype html>")
    assert "@@" not in page
    assert "<title>exact agent in lazymdp/KeyDoorTreasure-v0</title>" in page
    assert "default-src 'none'" in page
    outside = re.sub(r"<script.*?</script>|<pre>.*?</pre>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|https?://""", outside)


def test_the_page_carries_the_license_of_what_it_embeds(page):
    license = resources.files("lazymdp.show").joinpath("assets", "uPlot.LICENSE").read_text().strip()
    assert f"<script>/*\n{license}\n*/" in page
    assert f"<pre>{license}</pre>" in page


def test_the_same_recording_gives_the_same_page(recording, page, tmp_path):
    assert written(recording, tmp_path) == page


def test_the_data_are_those_of_the_recording(recording, page):
    (agent,) = data_of(page)
    assert agent["eta"] == 0.025
    assert agent["actionNames"] == recording.about["action_names"]
    assert [episode["number"] for episode in agent["episodes"]] == [0, 1]
    for episode in agent["episodes"]:
        columns = recording.steps(episode["number"])
        for name, column in (("gap", "lazy_gap"), ("value", "value"), ("reward", "reward"), ("action", "action")):
            np.testing.assert_allclose(array_of(episode[name]), columns[column], rtol=1e-6)
        assert array_of(episode["control"]).tolist() == columns["control"].tolist()
        assert episode["covered"] == len(columns["control"])


def decoded(path):
    """The codec and the other facts that ffmpeg prints about a video, and its frames `[h, w, 3]`."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    command = [ffmpeg, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    found = subprocess.run(command, check=True, capture_output=True)
    facts = re.search(r"Stream #0.*Video: (.*)", found.stderr.decode())[1]
    width, height = map(int, re.search(r", (\d+)x(\d+)", facts).groups())
    return facts, np.frombuffer(found.stdout, dtype=np.uint8).reshape(-1, height, width, 3).astype(int)


def test_the_videos_show_every_step_gray_or_with_a_border(recording, page, tmp_path):
    videos = videos_of(page)
    assert set(videos) == {("a", 0), ("a", 1)}
    path = tmp_path / "clip.mp4"
    path.write_bytes(videos["a", 0])
    facts, frames = decoded(path)
    assert facts.startswith("h264") and "yuv420p" in facts and " 4 fps" in facts
    assert recording.about["frames_per_second"] == 4
    control = recording.steps(0)["control"]
    assert len(frames) == len(control)
    for frame, in_control in zip(frames, control, strict=True):
        colorful = np.ptp(frame, axis=2)
        assert (colorful[:3].min() > 100) == in_control  # the border
        assert (colorful[20:-20, 20:-20].max() > 60) == in_control  # the picture


# -- what it says --------------------------------------------------------------------------------------------------


def test_the_summary_states_the_numbers(recording, page):
    text = text_of(page)
    controls = sum(recording.steps(episode)["control"].sum() for episode in range(2))
    steps = sum(recording.summary(episode)["length"] for episode in range(2))
    assert f"It acts in {100 * controls / steps:.0f}% of the steps and leaves the others to the default policy" in text
    assert f"The two episodes have {steps} steps in all. The return is 1 in each." in text
    paid = re.search(r"Each step in control costs 0\.025, which adds up to ([\d.]+) per episode on average\.", text)[1]
    assert float(paid) == pytest.approx(0.025 * controls / 2, rel=1e-2)


def test_moments_are_the_highest_peaks(recording, page):
    moments = re.findall(r'class="moment" data-episode="(\d+)" data-step="(\d+)">(.*?)</button>', page)
    assert 3 <= len(moments) <= 8
    gaps = [recording.steps(int(episode))["lazy_gap"][int(step)] for episode, step, _ in moments]
    assert gaps == sorted(gaps, reverse=True)
    assert (int(moments[0][0]), int(moments[0][1])) == lz.explain.rank(recording).top(1)[0]
    assert all("any of the 4 actions, 25% each" in html for _, _, html in moments)
    assert all('<img src="data:image/png;base64,' in html for _, _, html in moments)
    assert len({re.search(r'src="(.*?)"', html)[1] for _, _, html in moments}) == len(moments)  # no picture twice


def test_without_extras_it_says_how_to_measure_fidelity(page):
    text = text_of(page)
    assert "The fidelity of this ranking has not been measured. lazymdp fidelity measures" in text
    assert "What would have followed" not in text and "critic" not in text
    assert "The value of the best action minus the mean value under the default policy" in text
    assert re.search(r'aria-labelledby="frontier-a" hidden>', page)


def test_it_shows_what_the_description_adds(tmp_path):
    synthetic(tmp_path / "cart")
    page = written(describe(tmp_path / "cart", **EXTRAS), tmp_path)
    text = text_of(page)
    assert "The default policy alone earns a return of 0.02." in text
    assert "What would have followed" in text and "Episode 0, step 3 1 0.4 0.6 (0.5 to 0.7) 100 replays" in text
    assert re.search(r"lazy-gap 0\.31 \(0\.24 to 0\.38\) action-gap 0\.22 .* random 0 \(-0\.05 to 0\.05\)", text)
    assert "TD error on held-out episodes, root mean square 0.0123 Correlation with Monte Carlo returns 0.93" in text
    assert "mean little" not in text
    assert "default policy alone 0.02 (0 to 0.05) 0%" in text
    assert [row["eta"] for row in data_of(page)[0]["frontier"]] == [None, 0.05, 0.02, 0.005]


def test_it_shows_how_many_steps_each_measure_hands_over(tmp_path):
    synthetic(tmp_path / "cart")
    handed = {"shares": [0.1, 0.2, 0.4], "handed_random": [0.1, 0.19, 0.4]}
    rows = [
        {"measure": "action_gap", "replace_area": 0.0, "low": 0.0, "high": 0.1, "handed": [0.2, 0.24, 0.59], **handed},
        {"measure": "lazy_gap", "replace_area": 0.3, "low": 0.2, "high": 0.4, "handed": [0.2, 0.38, 0.32], **handed},
    ]
    text = text_of(written(describe(tmp_path / "cart", fidelity=rows), tmp_path))
    assert "Steps in fact handed over, of 10%, 20% and 40%" in text
    assert re.search(r"lazy-gap 0\.3 \(0\.2 to 0\.4\) 20%, 38% and 32% action-gap 0 .* 20%, 24% and 59%", text)
    assert "random steps 0 10%, 19% and 40%" in text and "More or fewer steps may be handed over in fact" in text


def test_the_reason_why_there_is_no_fidelity_is_told(tmp_path):
    synthetic(tmp_path / "cart")
    text = text_of(written(describe(tmp_path / "cart", no_fidelity="It has <no> copies."), tmp_path))
    assert "The fidelity of this ranking has not been measured. It has &lt;no&gt; copies." in text


def test_states_with_names_are_named(recording, page, tmp_path):
    names, columns = recording.about["state_names"], recording.steps(1)
    states = columns["observation"][:, 0].astype(int)
    (agent,) = data_of(page)
    np.testing.assert_array_equal(array_of(agent["episodes"][1]["state"]), states)
    assert all(agent["stateNames"][str(state)] == names[state] for state in states) and len(names) > 100
    assert len(agent["stateNames"]) < len(names)  # those that were met
    for episode, step, html in re.findall(
        r'class="moment" data-episode="(\d+)" data-step="(\d+)">(.*?)</button>', page
    ):
        assert names[int(recording.steps(int(episode))["observation"][int(step), 0])] in html
    assert data_of(written(synthetic(tmp_path / "cart"), tmp_path))[0]["stateNames"] is None


def test_replays_have_a_column_of_notes_only_if_there_are_notes(tmp_path):
    synthetic(tmp_path / "cart")
    row = {"episode": 0, "step": 3, "return_agent": 1.0, "return_default": 0.4, "low": 0.5, "high": 0.7, "note": None}
    page = written(describe(tmp_path / "cart", counterfactuals=[row]), tmp_path)
    assert "Episode 0, step 3 1 0.4 0.6 (0.5 to 0.7)" in text_of(page) and ">Note<" not in page
    noted = {"episode": 1, "step": 2, "return_agent": None, "return_default": None, "note": "Not repeated."}
    page = written(describe(tmp_path / "cart", counterfactuals=[row, noted]), tmp_path)
    assert "Episode 1, step 2 Not repeated." in text_of(page) and ">Note<" in page


def test_a_moment_tells_where_else_it_was_met():
    met = [Moment(0, 3, 1.0, 0.1), Moment(0, 9, 0.9, 0.1), Moment(2, 1234, 0.8, 0.1), Moment(2, 5, 0.7, 0.1)]
    assert _elsewhere(met[0], met[1:2]) == "at step 9"
    assert _elsewhere(met[0], met[1:3]) == "at step 9 and at step 1,234 of episode 2"
    assert _elsewhere(met[0], met[1:]) == "at 3 other moments"


def test_a_moment_tells_what_followed_without_control(tmp_path):
    synthetic(tmp_path / "cart")
    first, second, *_ = moments_of(lz.explain.load(tmp_path / "cart"), 8)
    row = {"return_agent": 1.0, "return_default": 0.4, "high": 0.7, "note": None}
    clear = row | {"episode": 0, "step": first[0].step, "low": 0.5}
    unclear = row | {"episode": 0, "step": second[0].step, "low": 0.0}
    page = written(describe(tmp_path / "cart", counterfactuals=[clear, unclear]), tmp_path)
    cards = [text_of(card) for card in re.findall(r'class="moment".*?</button>', page)]
    told = "Return if the default policy takes this step: 0.4 ; with the agent&rsquo;s choice: 1"
    assert cards[0].strip().endswith(told) and cards[1].strip().endswith(f"{told} (no clear difference)")
    assert len(cards) > 2 and not any("takes this step" in card for card in cards[2:])


def test_a_poor_critic_is_called_poor(tmp_path):
    synthetic(tmp_path / "cart")
    for correlation in (0.2, None):
        critic = {"method": "fitted <Q>", "gamma": 0.99, "td_error": 1.5, "correlation": correlation}
        text = text_of(written(describe(tmp_path / "cart", critic=critic), tmp_path))
        assert "so the moments on this page mean little" in text
        assert "The value of the agent&#x27;s choice minus the mean value under the default policy" in text
        assert f"Correlation with Monte Carlo returns {'undefined' if correlation is None else 0.2}" in text
        assert "method fitted &lt;Q&gt; gamma 0.99" in text


def test_actions_are_counted_in_control_only(tmp_path):
    control = np.arange(60) < 10
    control[1:10:2] = False  # even steps are "left"
    page = written(synthetic(tmp_path / "cart", control=control, probability=(0.2, 0.8)), tmp_path)
    bars = dict(re.findall(r'<li><span class="name">(\w+)</span><span class="pair">(.*?)</span></li>', page))
    assert [re.findall(r"<span>(.*?)</span>", bars[name]) for name in ("left", "right")] == [
        ["100%", "20%"],
        ["0%", "80%"],
    ]


def test_a_recording_without_frames_has_timelines_only(tmp_path):
    page = written(synthetic(tmp_path / "cart"), tmp_path)
    assert videos_of(page) == {}
    assert "The recording has no frames, so there is no video." in text_of(page)
    assert "<img" not in page


def test_unknown_values_are_no_error(tmp_path):
    recording = synthetic(
        tmp_path / "cart", gaps=np.full(60, np.nan), control=np.ones(60), probability=(np.nan, np.nan)
    )
    text = text_of(written(describe(tmp_path / "cart", eta=None), tmp_path))
    assert recording.steps(0)["control"].all()
    assert "It takes control in every step and leaves none to the default policy (uniform)." in text
    assert "there are no lazy-gaps to rank its moments by" in text and "no price" in text


def test_two_recordings_share_a_page(recording, tmp_path):
    other = synthetic(tmp_path / "cart", control=np.zeros(60))
    page = written(recording, tmp_path, against=other)
    assert [agent["key"] for agent in data_of(page)] == ["a", "b"]
    assert "They play different environments. exact agent acts in " in text_of(page)
    assert "; cart never acts and earns a return of 60." in text_of(page)
    ids = re.findall(r' id="(.*?)"', page)
    assert len(ids) == len(set(ids))


def test_two_agents_of_the_same_name_are_told_apart_by_their_prices(tmp_path):
    cheap, dear = (synthetic(tmp_path / f"{eta}", eta=eta) for eta in (0.1, None))
    page = written(cheap, tmp_path, against=dear)
    assert "<title>cart at price 0.1 and cart without a price</title>" in page
    assert "Both play CartPole-v1. cart at price 0.1 acts in " in text_of(page)
    assert re.findall(r'class="agent-name">(.*?)<', page) == ["cart at price 0.1", "cart without a price"]
    page = written(cheap, tmp_path, against=cheap)
    assert re.findall(r'class="agent-name">(.*?)<', page) == ["cart at price 0.1 (first)", "cart at price 0.1 (second)"]


def test_names_are_escaped(tmp_path):
    evil = '"><script>x</script>\u2192@@DATA@@'
    names = [evil, "right"]
    page = written(
        synthetic(tmp_path / "evil", agent=evil, env=evil, default_policy=evil, action_names=names), tmp_path
    )
    assert "<script>x" not in page
    assert "&gt;&lt;script&gt;x&lt;/script&gt;&#8594;@@DATA@@" in page


# -- size ----------------------------------------------------------------------------------------------------------


def test_a_video_that_is_too_large_is_cut_short_and_the_page_says_so(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "_MOST_BYTES", 9_000)
    page = written(recording, tmp_path)
    (agent,) = data_of(page)
    opened = agent["episodes"][agent["start"]]
    length = recording.summary(opened["number"])["length"]
    assert 0 < opened["covered"] < length
    assert f"The video of episode {opened['number']} stops at step {opened['covered']} of {length}." in text_of(page)
    assert "It has videos of 1 of these 2 episodes." in text_of(page)
    assert sum(map(len, videos_of(page).values())) * 4 / 3 < 9_000


def test_timelines_that_are_too_large_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "_MOST_BYTES", 4 * 2 * 100 * 17 * 4 / 3 + 100)
    page = written(synthetic(tmp_path / "cart", lengths=(100,) * 5), tmp_path)
    assert len(data_of(page)[0]["episodes"]) == 2
    assert "The page has timelines of 2 of 5 episodes, to stay small." in text_of(page)


# -- errors --------------------------------------------------------------------------------------------------------


def test_errors_name_the_argument_and_the_remedy(recording, tmp_path):
    RecordingWriter(tmp_path / "empty", about())
    empty = lz.explain.load(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"^recording \(.*empty\) has no whole episode: record at least one"):
        lz.explain.report(empty, tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"^against \(.*empty\) has no whole episode"):
        lz.explain.report(recording, tmp_path / "page.html", against=empty)
    with pytest.raises(TypeError, match=r"recording is 'runs', expected a Recording: open one with `lz.explain.load"):
        lz.explain.report("runs", tmp_path / "page.html")
    with pytest.raises(FileNotFoundError, match="cannot write .*: there is no folder"):
        lz.explain.report(recording, tmp_path / "nowhere" / "page.html")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        lz.explain.report(recording, tmp_path)
    assert not (tmp_path / "page.html").exists()
