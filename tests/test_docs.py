"""The documentation says what is so: its code runs and prints what it shows, its tables name what exists."""

import ast
import csv
import dataclasses
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import lazymdp as lz
from lazymdp.cli import main as cli
from lazymdp.cli.sweep import ACTIONS
from lazymdp.cli.train import Settings, defaults_by_kind
from lazymdp.experiments import EXPERIMENTS
from lazymdp.experiments.registry import on_cpu
from lazymdp.experiments.study import has_data

matplotlib.use("Agg")
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def read(page):
    return (DOCS / page).read_text(encoding="utf-8")


def section(text, heading):
    """What stands under a heading, up to the next of its rank or a higher one."""
    rank = len(heading.split()[0])
    start = re.search(rf"^{re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"there is no heading {heading!r}"
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{rank}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text):
    """The cells of every row of every table, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [
        row for row, below in zip(cells, [*cells[1:], [""]], strict=True) if not _is_rule(row) and not _is_rule(below)
    ]


def _is_rule(row):
    return all(re.fullmatch(r":?-+:?", cell) for cell in row)


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


# -- code ----------------------------------------------------------------------------------------------------------


def installed(package):
    return importlib.util.find_spec(package) is not None


def with_code():
    """Returns the pages that have code; those that import Stable-Baselines3 are marked `interop`."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if BLOCK.search(text):
            marks = [pytest.mark.interop] if "from stable_baselines3" in text else []
            yield pytest.param(page, id=str(page.relative_to(DOCS)), marks=marks)


@pytest.mark.parametrize("page", list(with_code()))
def test_the_code_of_a_page_runs_and_prints_what_follows_it(page, tmp_path, monkeypatch, capsys):
    """Code that trains a deep agent, and all after it, needs JAX: `make test-deep` runs these pages, too.

    `make test-interop` runs the pages that import Stable-Baselines3.
    """
    monkeypatch.chdir(tmp_path)
    names = {}
    for code, printed in BLOCK.findall(page.read_text(encoding="utf-8")):
        if "lz.learn.train(" in code and not installed("jax"):
            break
        if not all(installed(name) for name in re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)):
            continue
        exec(compile(code, str(page), "exec"), names)
        assert capsys.readouterr().out.strip() == printed.strip(), code
    plt.close("all")


def test_the_guides_have_code():
    for page in ("start.md", "learning.md", *(f"guides/{path.name}" for path in (DOCS / "guides").glob("*.md"))):
        assert BLOCK.search(read(page)), page


COMMANDS = [
    (page.relative_to(DOCS), line)
    for page in PAGES
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^\$ (lazymdp .*)$", block, re.MULTILINE)
]


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: str(value))
def test_a_command_that_is_shown_can_be_given(page, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mdp = lz.MDP([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]], [[1.0, 0.5], [0.0, -3.0]], 0.9)
    mdp.save("pump.npz")  # what the guide has saved by then
    np.save("on_failure.npy", [[1.0, 0.0], [0.0, 1.0]])
    given = shlex.split(line, comments=True)[1:]
    if given[0] == "reproduce":  # long: only whether it would be understood
        monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", interrupt)
        assert cli.main(given) == 130
    else:
        assert cli.main(given) == 0


# -- the command line ----------------------------------------------------------------------------------------------


def options_in_help(capsys, *command):
    """The options that `--help` lists, `-h` and `--help` left out."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert ended.value.code == 0
    heads = re.findall(r"^(?:│ | {1,2})(--?[a-z].*?)(?:  |│|$)", capsys.readouterr().out, re.MULTILINE)
    found = {name for head in heads for name in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", head)}
    return found - {"-h", "--help"}


NESTED = {f"sweep {name}": function for name, function in ACTIONS.items()}


@pytest.mark.parametrize("command", [*cli.COMMANDS, *NESTED])
def test_every_option_of_a_command_is_documented_and_no_other(command, capsys):
    documented = rows(section(read("cli.md"), f"## lazymdp {command}"))
    options = {name for row in documented if len(row) == 3 for name in quoted(row[0])}
    settings = {quoted(row[0])[0] for row in documented if len(row) == 5} if command == "train" else set()
    assert options | settings == options_in_help(capsys, *command.split())
    parameters = inspect.signature({**cli.COMMANDS, **NESTED}[command]).parameters
    known = {name.strip("_"): entry.default for name, entry in parameters.items()}  # `from` is a keyword of Python
    for row in documented:
        if len(row) == 3:
            name = quoted(row[0])[0].strip("-").replace("-", "_")
            assert _plain(row[1]) == _shown(known[name]), row


def test_every_setting_of_the_algorithms_is_documented_with_its_defaults():
    documented = [row for row in rows(section(read("cli.md"), "## lazymdp train")) if len(row) == 5]
    names = {name.strip("_").replace("_", "-"): name for name in (f.name for f in dataclasses.fields(Settings))}
    assert {quoted(row[0])[0].removeprefix("--") for row in documented} == set(names)
    for option, *defaults, meaning in documented:
        algorithm, expected = defaults_by_kind(names[quoted(option)[0].removeprefix("--")])
        assert defaults == list(map(_shown, expected.values())), option
        assert meaning.startswith(f"Only `{algorithm}`: ") == (algorithm is not None), option


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_of_an_experiment_is_documented_with_its_default(name, capsys):
    text = section(read("cli.md"), "## lazymdp reproduce")
    documented = {quoted(row[1])[0]: row[2] for row in rows(text) if len(row) == 4 and quoted(row[0]) == [name]}
    common = {option for row in rows(text) if len(row) == 3 for option in quoted(row[0])}
    assert set(documented) | common == options_in_help(capsys, "reproduce", name)
    defaults = {
        f"--{field.name.replace('_', '-')}": field.default for field in dataclasses.fields(EXPERIMENTS[name].config)
    }
    assert documented == {option: _shown(default) for option, default in defaults.items()}


def _plain(cell):
    return cell.strip("`")


def _shown(default):
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, bool) or default is None:
        return {False: "off", True: "on", None: "none"}[default]
    if isinstance(default, tuple):
        return " ".join(map(_shown, default)) or "none"
    return f"{default:.4g}" if isinstance(default, float) else str(default)


def test_the_exit_codes_are_those_of_the_module():
    codes = {row[0] for row in rows(read("cli.md").split("\n## ")[0])}
    assert codes == set(re.findall(r"(?:codes: |, )(\d+) ", cli.__doc__))


# -- the paper map -------------------------------------------------------------------------------------------------

TESTS = {
    node.name
    for path in (ROOT / "tests").rglob("test_*.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}
NOT_YET = "the Atari study, not yet"
MAP = rows(read("paper_map.md"))


def resolve(name):
    """The object that `lz.a.b` names."""
    found = lz
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("row", MAP, ids=lambda row: row[0][:50])
def test_a_row_of_the_paper_map_names_what_exists(row):
    statement, code, tests, experiments = row
    if code == NOT_YET:
        assert (tests, experiments) == ("", "")
        return
    names = [name for name in quoted(code) if name.startswith("lz.")]
    assert names, f"nothing covers {statement}"
    for name in names:
        assert resolve(name) is not None
    fields = set(quoted(code)) - set(names)
    for field in fields:  # an attribute or argument of the name before it
        owner = resolve(names[0])
        known = {f.name for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
        assert field.strip("=") in known or field.strip("=") in inspect.signature(owner).parameters, field
    assert quoted(tests), f"no test covers {statement}"
    assert set(quoted(tests)) <= TESTS, set(quoted(tests)) - TESTS
    assert set(quoted(experiments)) <= set(EXPERIMENTS)


def test_the_paper_map_leaves_nothing_out():
    text = "\n".join(row[0] for row in MAP)
    statements = [f"Theorem {n}:" for n in range(1, 5)] + [f"Property {n}" for n in range(1, 4)] + ["Corollary 1:"]
    wanted = statements + [f"Figure {n}:" for n in range(1, 13)] + [f"Slip {n}:" for n in range(1, 5)]
    assert [name for name in wanted if name not in text] == []
    later = {row[0].split(":")[0] for row in MAP if row[1] == NOT_YET}
    assert later == {f"Figure {n}" for n in (6, 12)}
    assert {name for row in MAP for name in quoted(row[3])} == set(on_cpu()) | {
        "dqn-dopamine",
        "atari-moments",
        "minatar-pretrained",
    }


# -- names ---------------------------------------------------------------------------------------------------------


def test_every_public_name_is_on_the_api_page():
    text = read("api.md")
    for module in (lz, lz.envs, lz.explain, lz.policies, lz.learn, lz.measure, lz.show):
        for name in module.__all__:
            assert re.search(rf"(?<!\w){name}(?!\w)", text), f"{module.__name__}.{name} is not on the page"


DEEP = tuple(
    f"lazymdp.learn.deep.{name}"
    for name in ("trainer", "factory", "population", "agent", "evaluation_episodes", "price_search")
)
"""Modules that need JAX."""


def test_what_the_api_page_lists_exists():
    names, of = set(), ""
    for kind, name in re.findall(
        r"^\.\. (currentmodule|automodule|autofunction|autoclass):: ([\w.]+)", read("api.md"), re.M
    ):
        if kind in ("currentmodule", "automodule"):
            of = name.replace("lazymdp.policies", "lazymdp.exact.policies")
            if of in DEEP:
                source = ast.parse((ROOT / "src" / f"{of.replace('.', '/')}.py").read_text())
                names = {part.name for part in source.body if isinstance(part, ast.FunctionDef | ast.ClassDef)}
            else:
                names = set(vars(__import__(of, fromlist=["_"])))
        else:
            assert name in names, f"{of}.{name}"


def test_the_information_of_a_step_is_what_the_guide_says():
    env = lz.LazyAction(gym.make("CartPole-v1"), "uniform")
    env.reset(seed=0)
    ended, steps = False, []
    while not ended:
        *_, terminated, truncated, info = env.step(env.lazy_action)
        ended = terminated or truncated
        steps.append(info)
    table = rows(section(read("guides/own_environment.md"), "### What `info` holds"))
    always = {quoted(row[0])[0]: row[1] for row in table if row[2] == "every step"}
    last = {quoted(row[0])[0]: row[1] for row in table if row[2] != "every step"}
    assert set(steps[0]) == set(always) and set(steps[-1]) == set(always) | set(last)
    assert {key: type(value).__name__ for key, value in steps[-1].items()} == always | last


def test_the_options_and_results_of_learning_are_those_of_the_code():
    known = inspect.signature(lz.learn.q_learning).parameters
    options = {name: row[1] for row in rows(section(read("learning.md"), "## Options")) for name in quoted(row[0])}
    assert set(options) == {name for name in known if not name.startswith("_")} - {"source"}
    for name in ("gamma", "alpha", "alpha_power", "episodes", "max_steps", "points", "lazy"):
        assert float(options[name].replace(",", "").replace("True", "1")) == float(known[name].default), name
    fields = {name for row in rows(section(read("learning.md"), "## What comes back")) for name in quoted(row[0])}
    assert fields == {field.name for field in dataclasses.fields(lz.learn.TabularResult)}


def test_every_experiment_is_shown_with_its_claims_and_its_command():
    text = read("reproduce.md")
    for name in EXPERIMENTS:
        shown = (f"$ lazymdp reproduce {name}\n", f"results/{name}/figure.png", f"results/{name}/claims.csv")
        for needed in shown if has_data(name) else (f"$ lazymdp reproduce {name} --fresh",):
            assert needed in text, needed


def test_every_file_that_is_shown_exists():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        files = re.findall(r"!\[.*?\]\((.+?)\)", text) + re.findall(r"^\s*:file: (.+)$", text, re.MULTILINE)
        files += re.findall(r"^```\{(?:include|literalinclude)\} (.+)$", text, re.MULTILINE)
        files += [link.split("#")[0] for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)]+\.md(?:#[\w-]+)?)\)", text)]
        for file in files:
            assert (page.parent / file).is_file(), f"{page.name}: {file}"


def test_every_picture_is_shown_somewhere():
    text = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "README.md"])
    for picture in (DOCS / "pictures").glob("*"):
        assert f"pictures/{picture.name}" in text, picture.name


def test_every_example_is_listed_in_the_start_page():
    listed = set(re.findall(r"`(\w+\.py)`", section(read("start.md"), "## Examples")))
    assert listed == {path.name for path in (ROOT / "examples").glob("*.py")}


# -- measured pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["control", "algorithms", "ablations"])
def test_a_page_of_returns_shows_the_runs_that_are_committed(name):
    given = {"control": "benchmark.made()", "ablations": "benchmark.control.made(benchmark.RUNS)"}.get(name, "")
    code = (
        f"import report, {name} as benchmark\n"
        "report.write = lambda name, title, results, sections: print(*sections, sep='\\n\\n')\n"
        f"benchmark.write_page({given})"
    )
    command = [sys.executable, "-c", code]
    environ = {"LAZYMDP_BENCHMARKS": "here", "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT / "benchmarks", env={**os.environ, **environ}
    ).stdout
    opening, rest = read(f"benchmarks/{name}.md").split("\n\n", 2)[1:]
    assert opening.startswith(f"Written by `python benchmarks/{name}.py") and rest == shown


def test_every_learning_test_has_passed_with_20_seeds():
    """`make seeds` keeps the rows of tests that it does not run, so rows can be missing or left over.

    `tests/learn/deep/test_seeds.py` compares the parameters of the tests, too.
    """
    found = {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        if any(ast.unparse(decorator) == "pytest.mark.learning" for decorator in node.decorator_list)
    }
    with open(ROOT / "benchmarks" / "results" / "seeds.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["test"].partition("[")[0] for row in table} == found
    assert [row["test"] for row in table if row["seeds"] != "20" or int(row["passed"]) < 19] == []
