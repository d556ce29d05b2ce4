"""The report in a real browser: video, timelines and moments show the same step."""

import pytest
from headless import opened_pages
from recordings import EXTRAS, key_door, synthetic

import lazymdp as lz

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return key_door(tmp_path_factory.mktemp("recordings") / "key_door", episodes=2, **EXTRAS)


@pytest.fixture(scope="module")
def file(recording, tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "report.html"
    lz.explain.report(recording, path)
    return path


@pytest.fixture(scope="module")
def without_frames(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    lz.explain.report(synthetic(folder / "cart"), folder / "report.html")
    return folder / "report.html"


@pytest.fixture
def show(browser):
    with opened_pages(browser, allowed=("file://", "data:", "blob:")) as opened:

        def ready(path, **settings):
            page = opened(path, **settings)
            page.wait_for_selector('.agent[data-ready="true"]')
            return page

        yield ready


def step(page, agent="a"):
    return int(page.get_attribute(f"#agent-{agent}", "data-step"))


def video_step(page, fps):
    """The step that the video shows, once it has finished seeking."""
    page.wait_for_function(
        "() => { const v = document.querySelector('video'); return v.readyState > 1 && !v.seeking; }"
    )
    last = int(page.get_attribute(".scrub", "max"))  # the last frame stays on screen when the video has ended
    return min(int(fps * page.evaluate("document.querySelector('video').currentTime")), last)


def clipped(page):
    """The elements that reach beyond the page to the right, other than those inside something that scrolls."""
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .unseen, .plot, script")
            && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"""
    )


MISSING_WIDTH = """() => [...document.querySelectorAll("select")].map(select => {
    const { width } = select.getBoundingClientRect();
    Object.assign(select.style, { width: "max-content", maxWidth: "none" });
    return Math.max(Math.round(select.getBoundingClientRect().width - width), 0);
})"""
"""How much wider, in pixels, each list would have to be to show its longest entry."""


def test_the_state_is_shown_if_it_has_a_name(show, file, recording, without_frames):
    page = show(file)
    for place in (0, 7):
        page.evaluate("([place]) => { const s = document.querySelector('.scrub'); s.value = place; "
                      "s.dispatchEvent(new Event('input')); }", [place])  # fmt: skip
        episode = int(page.locator(".episode").evaluate("list => list.value"))
        state = int(recording.steps(episode)["observation"][place, 0])
        assert page.inner_text("[data-show=state]") == recording.about["state_names"][state]
    assert not show(without_frames).is_visible("[data-show=state]")


def test_it_opens_on_the_largest_moment(show, file, recording):
    page = show(file)
    episode, peak = lz.explain.rank(recording).top(1)[0]
    assert step(page) == peak
    assert page.input_value(".episode") == str(episode)
    fps = recording.about["frames_per_second"]
    assert video_step(page, fps) == peak
    columns = recording.steps(episode)
    assert (
        page.text_content('[data-show="choice"]')
        == f"in control: {recording.about['action_names'][columns['action'][peak]]}"
    )
    assert float(page.text_content('[data-show="gap"]')) == pytest.approx(columns["lazy_gap"][peak], rel=1e-2)
    assert float(page.text_content('[data-show="value"]')) == pytest.approx(columns["value"][peak], rel=1e-2)


def test_the_keys_move_the_video_and_the_playhead(show, file, recording):
    page = show(file)
    fps = recording.about["frames_per_second"]
    last = int(page.get_attribute(".scrub", "max"))
    lines = []
    for key, expected in (
        ("Home", 0), ("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("End", last),
        ("ArrowRight", last),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert step(page) == expected
        assert video_step(page, fps) == expected
        assert page.input_value(".scrub") == str(expected)
        lines.append(page.evaluate("document.querySelector('.now-line').getBoundingClientRect().left"))
    assert lines[0] < lines[1] < lines[3] < lines[2] < lines[4] == lines[5]


def test_space_plays_and_pauses(show, file, recording):
    page = show(file)
    page.keyboard.press("Home")
    page.select_option(".speed", "4")
    page.click(".all")  # a button that was clicked does not keep the key to itself
    page.keyboard.press("Space")
    page.wait_for_function("() => Number(document.querySelector('.agent').dataset.step) >= 3")
    assert page.get_attribute(".play", "aria-label") == "Pause"
    page.keyboard.press("Space")
    assert page.get_attribute(".play", "aria-label") == "Play"
    stopped = step(page)
    middle = (stopped + 0.5) / recording.about["frames_per_second"]
    assert video_step(page, recording.about["frames_per_second"]) == stopped
    assert page.evaluate("document.querySelector('video').currentTime") == pytest.approx(middle)
    page.wait_for_timeout(400)
    assert step(page) == stopped


def test_a_click_on_a_peak_goes_there_and_a_drag_zooms(show, file, recording):
    page = show(file)
    episode, peak = lz.explain.rank(recording).top(1)[0]
    page.keyboard.press("Home")
    over = page.locator(".u-over").first
    box = over.bounding_box()
    length = recording.summary(episode)["length"]
    beside = box["width"] * (peak + 0.5) / length + 3  # three pixels beside the peak
    over.click(position={"x": beside, "y": box["height"] / 2})
    assert step(page) == peak
    before = page.evaluate("document.querySelector('.now-line').offsetLeft")
    x, y = box["x"] + box["width"] / 2, box["y"] + 30
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 0.3 * box["width"], y, steps=5)
    page.mouse.up()
    assert step(page) == peak  # a drag does not move the playhead
    page.wait_for_function("x => document.querySelector('.now-line').offsetLeft !== x", arg=before)
    page.click(".all")
    page.wait_for_function("x => Math.abs(document.querySelector('.now-line').offsetLeft - x) < 2", arg=before)


def test_a_zoomed_view_follows_the_playhead(show, file):
    page = show(file)
    for _ in range(4):
        page.click(".in")
    page.keyboard.press("Home")
    inside = "() => { const l = document.querySelector('.now-line'); return l.offsetLeft >= 0 && l.offsetLeft <= l.parentElement.offsetWidth; }"  # noqa: E501
    assert page.evaluate(inside)
    page.keyboard.press("End")
    assert page.evaluate(inside)
    page.click(".out")


def test_a_click_on_a_moment_goes_there_also_in_another_episode(show, file, recording):
    page = show(file)
    moments = page.locator(".moment")
    assert moments.count() > 2
    for place in range(moments.count()):
        moment = moments.nth(place)
        moment.click()
        assert step(page) == int(moment.get_attribute("data-step"))
        assert page.input_value(".episode") == moment.get_attribute("data-episode")
        assert moment.get_attribute("aria-current") == "true"
    assert video_step(page, recording.about["frames_per_second"]) == step(page)


def test_the_episode_can_be_chosen(show, file, recording):
    page = show(file)
    for episode in range(recording.episodes):
        page.select_option(".episode", str(episode))
        assert int(page.get_attribute(".scrub", "max")) == recording.summary(episode)["length"] - 1
        assert step(page) == 0


def test_without_frames_the_timelines_play_alone(show, without_frames):
    page = show(without_frames)
    assert page.locator("video").is_hidden()
    assert page.locator(".timeline").count() == 4
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_function("() => Number(document.querySelector('.agent').dataset.step) >= 2")
    page.keyboard.press("Space")
    page.keyboard.press("End")
    assert step(page) == 59


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_clipped_and_the_colors_follow_the_system(show, file, width, scheme):
    page = show(file, viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert clipped(page) == []
    assert page.evaluate(MISSING_WIDTH) == [0, 0]
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (min(red, green, blue) > 200) == (scheme == "light")


def test_the_numbers_of_a_long_episode_do_not_run_into_each_other(show, tmp_path):
    lz.explain.report(synthetic(tmp_path / "long", lengths=(12_000,)), tmp_path / "long.html")
    page = show(tmp_path / "long.html", viewport={"width": 390, "height": 844})
    page.keyboard.press("End")
    assert page.text_content('[data-show="step"]') == "11999 of 11999"
    numbers = page.locator(".readout dd")
    assert numbers.evaluate_all("all => all.filter(each => each.scrollWidth > each.clientWidth).length") == 0


def test_two_recordings_stand_side_by_side_and_below_each_other_on_a_phone(show, recording, tmp_path):
    other = key_door(tmp_path / "other", eta=0.025, agent="an agent with a name_" + "that-does-not-break" * 6)
    lz.explain.report(recording, tmp_path / "two.html", against=other)
    page = show(tmp_path / "two.html")
    left, right = (page.locator(f"#agent-{key}").bounding_box() for key in "ab")
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    tops = [page.locator(f"#moments-{key}").bounding_box()["y"] for key in "ab"]
    assert tops[0] == tops[1]
    before = step(page, "a")
    page.locator("#agent-b .forward").click()
    page.locator("#agent-b .back").click()
    page.keyboard.press("Home")  # moves the recording that was used last
    assert (step(page, "a"), step(page, "b")) == (before, 0)
    phone = show(tmp_path / "two.html", viewport={"width": 390, "height": 844})
    first, second = (phone.locator(f"#agent-{key}").bounding_box() for key in "ab")
    assert first["x"] == second["x"] and first["y"] + first["height"] <= second["y"]
    assert clipped(phone) == []


def test_names_cannot_become_markup(show, tmp_path):
    evil = "<img src=x onerror=alert(1)></script><b>&amp;"
    recording = synthetic(tmp_path / "evil", agent=evil, env=evil, default_policy=evil, action_names=[evil, "b"])
    lz.explain.report(recording, tmp_path / "evil.html")
    page = show(tmp_path / "evil.html")
    assert page.title() == f"{evil} in {evil}"
    assert page.text_content("h1") == f"{evil} in {evil}"
    assert page.locator("img").count() == 0
    page.keyboard.press("Home")
    assert evil in page.text_content('[data-show="choice"]')


def test_every_control_has_a_name(show, file):
    page = show(file)
    for control in page.locator("button, select, input, video").all():
        name = control.evaluate(
            "e => e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')?.textContent.trim()"
        )
        assert name
