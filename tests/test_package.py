"""The package as a whole: the direction of its imports, its public names, and the README."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lazymdp as lz

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lazymdp"
LAYERS = (
    {
        "_arguments",
        "_arrays",
        "_colors",
        "_cores",
        "_env_outcomes",
        "_files",
        "_html_page",
        "_parent",
        "_progress",
        "_provenance",
    },
    {"mdp", "envs"},
    {"lazy", "defaults", "wrappers"},
    {"exact"},
    {"measure"},
    {"learn"},
    {"show"},
    {"explain"},
    {"experiments", "sweep"},
    {"cli"},
    {"__main__"},
)
"""The layers of the design: a package imports only from its own layer and from layers earlier in this list."""
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
MODULES = [path for path in FILES if path.name != "__init__.py"]
WHOLE_PROJECT = {"test_package", "test_docs", "test_examples", "test_fuzz", "test_scale", "test_seeds"}
"""Tests that do not belong to a single module."""


def imported(path):
    """Yields the names that a file imports, at any place in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: absolute imports only"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way(path):
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    for name in imported(path):
        if name.startswith("lazymdp."):
            other = name.split(".")[1]
            assert other in RANK, f"{other} is in no layer"
            assert RANK[other] <= RANK[own], f"{own} imports {name}"


def test_no_two_modules_share_a_name():
    names = [path.stem for path in MODULES if path.parent != SOURCE / "cli"]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)


def test_the_tests_mirror_the_package():
    modules = {path.relative_to(SOURCE).with_suffix("") for path in MODULES}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.stem in WHOLE_PROJECT:
            continue
        folder, about = path.relative_to(ROOT / "tests").parent, path.stem.removeprefix("test_")
        parts = about.split("_")
        names = ["_".join(parts[: end + 1]) for end in range(len(parts))]
        assert any({folder / name, folder / f"_{name}"} & modules for name in names), f"{path} tests no module"


def test_the_guide_for_contributors_names_every_package():
    tree = (ROOT / "CONTRIBUTING.md").read_text().split("## The tree")[1]
    for package in {path.parent.relative_to(SOURCE) for path in MODULES} - {Path()}:
        assert re.search(rf"^ +{package}/ ", tree, re.MULTILINE), package


def test_exact_and_measure_print_nothing_and_write_no_files():
    for path in [*(SOURCE / "exact").rglob("*.py"), *(SOURCE / "measure").rglob("*.py")]:
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {node.func.id for node in calls if isinstance(node.func, ast.Name)}
        assert not names & {"print", "open"}, path


def test_importing_does_not_draw():
    code = (
        "import sys, lazymdp; assert 'matplotlib' not in sys.modules; lazymdp.show; assert 'matplotlib' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_can_be_imported_on_windows():
    """It needs no module and no function that only POSIX systems have."""
    code = """
import os, signal, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"]))
import concurrent.futures, multiprocessing, subprocess  # the standard library looks the missing functions up once
for module, names in ((os, "fork register_at_fork sched_getaffinity killpg"), (signal, "SIGKILL SIGHUP SIGSTOP")):
    for name in names.split():
        delattr(module, name)
import lazymdp, lazymdp.learn, lazymdp.cli.main, lazymdp.show
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists_and_is_documented():
    for name in lz.__all__:
        assert getattr(lz, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lz.nothing


def test_dir_shows_public_names_only():
    assert sorted(dir(lz)) == sorted([*lz.__all__, "__version__"])
    for package in (lz, lz.envs, lz.explain, lz.learn, lz.measure, lz.show):
        public = set(dir(package)) - {"__version__"}
        assert set(package.__all__) <= public
        assert not [name for name in public if name.startswith("_")]
        needs_jax = {"train", "resume", "load", "export"} if package is lz.learn else set()
        for thing in (getattr(package, name) for name in public - needs_jax):
            if inspect.ismodule(thing):
                assert thing.__name__.startswith("lazymdp."), thing
            elif inspect.isclass(thing) or inspect.isfunction(thing):
                assert thing.__module__.startswith("lazymdp."), thing


def test_a_missing_extra_names_the_line_that_installs_it():
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import lazymdp as lz\n"
        "try:\n    lz.learn.train\nexcept ImportError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'lazymdp[deep]'" in said
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lz.learn.nothing


def test_explaining_without_its_extra_names_the_line_that_installs_it(tmp_path):
    code = (
        "import sys; sys.modules.update({'pyarrow': None, 'PIL': None, 'imageio_ffmpeg': None})\n"
        "import lazymdp as lz\n"
        f"try:\n    lz.explain.record('FrozenLake-v1', eta=0.1, folder={str(tmp_path / 'r')!r})\n"
        "except ImportError as error:\n    print(error)\n"
        "assert not {'jax', 'torch', 'matplotlib'} & set(sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "pip install 'lazymdp[explain]'" in said and not (tmp_path / "r").exists()


def test_a_forked_child_can_solve():
    """The threads of the solver do not exist in a forked child, which must start its own and not wait forever."""
    code = """
import os, numpy as np, scipy.sparse as sp, lazymdp as lz
n = 60_000
g = np.random.default_rng(0)
successors, ends = g.integers(n, size=8 * n), np.arange(0, 8 * n + 1, 4)
matrix = sp.csr_array((np.full(8 * n, 0.25), successors, ends), shape=(2 * n, n))
mdp = lz.MDP(matrix, g.random((n, 2)), 0.9)
lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1)
lz.solve(lazy)
child = os.fork()
if child == 0:
    os._exit(0 if lz.solve(lazy).converged else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


# -- the README -----------------------------------------------------------------------------------------------------


def test_the_readme_example_runs_and_prints_what_it_says():
    text = (ROOT / "README.md").read_text()
    code, printed = re.search(r"```python\n(.*?)```\s*\n```text\n(.*?)```", text, re.DOTALL).groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == printed.strip()


def test_the_readme_table_is_what_the_benchmarks_found():
    code = "import summary; print(summary.BEGIN + summary.table() + summary.END)"
    command = [sys.executable, "-c", code]
    block = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT / "benchmarks").stdout
    assert block.strip() in (ROOT / "README.md").read_text()
