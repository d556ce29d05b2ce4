"""The command line as a whole: errors, exit codes, `--version` and `--debug`."""

import subprocess
import sys

import pytest

from lazymdp.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("solve nowhere-v0 --eta 1", "nowhere-v0 is neither a file nor a Gymnasium environment"),
        ("solve CartPole-v1 --eta 1", "CartPoleEnv carries no transition table"),
        ("solve FrozenLake-v1 --eta nan", "eta is nan"),
        ("solve FrozenLake-v1 --eta 1 --gamma 1.5", "gamma"),
        ("solve FrozenLake-v1 --eta 1 --default-policy east", "the default policy is 'east', expected uniform"),
        ("solve FrozenLake-v1 --eta 1 --default-policy 9", "the default policy is '9', expected uniform"),
        ("solve FrozenLake-v1 --eta 1 --default-policy {tmp}/none.npy", "none.npy"),
        ("solve {tmp}/none.npz --eta 1", "there is no file"),
        ("solve {tmp}/bad.npz --eta 1", "not a model saved by MDP.save"),
        ("solve {tmp}/bad.txt --eta 1", "bad.txt: layout has '?' at row 0, column 1"),
        ("solve {tmp}/binary --eta 1", "not a text file"),
        ("solve {tmp}/rivers.npz --eta 1 --gamma 0.5", "was saved with gamma = 0.9"),
        ("path FrozenLake-v1 --control-count -1", "--control-count is -1"),
        ("path FrozenLake-v1 --control-count 1 -o {tmp}/no/x.csv", "there is no folder"),
        ("path FrozenLake-v1 --tol 0", "tol is 0"),
        ("explore FrozenLake-v1 -o {tmp}/no/x.html", "there is no folder"),
        ("explore FrozenLake-v1 -o {tmp}", "it is a folder"),
        ("explore FrozenLake-v1 -o {tmp}/x.html --axes row=4 column=5", "(row, column) give 4 x 5 = 20 states, but"),
        ("explore FrozenLake-v1 -o {tmp}/x.html --axes row", "--axes has 'row', expected different names with a size"),
        ("explore FrozenLake-v1 -o {tmp}/x.html --axes row=4 row=4", "--axes has 'row=4', expected different names"),
        ("reproduce fig7 --seeds 0 -o {tmp}/out", "seeds is 0"),
        ("reproduce minatar --seeds 3 -o {tmp}/out", "has no data for these settings"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(files, capsys, arguments, message):
    (files / "bad.npz").write_bytes(b"nothing")
    (files / "bad.txt").write_text("S?G")
    (files / "binary").write_bytes(b"\xff\xfe\x00")
    before = sorted(files.iterdir())
    given = [argument.format(tmp=files) for argument in arguments.split()]
    assert main(given) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "Error:" in line]
    assert len(lines) == 1 and message in lines[0]
    assert "Traceback" not in captured.err and not captured.out
    assert set(files.iterdir()) - set(before) <= {files / "out"}
    with pytest.raises((ValueError, OSError)):
        main([*given, "--debug"])


def test_a_wrong_option_ends_with_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["solve", "FrozenLake-v1", "--ata", "1"])
    assert stopped.value.code == 2
    assert "--ata" in capsys.readouterr().err


def test_an_interruption_ends_with_130(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lazymdp.cli.exact.load_model", interrupted)
    assert main(["solve", "FrozenLake-v1", "--eta", "1"]) == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_python_m_lazymdp_is_the_same_command():
    command = [sys.executable, "-m", "lazymdp"]
    assert subprocess.run([*command, "--version"], check=True, capture_output=True, text=True).stdout.startswith(
        "lazymdp 0"
    )
    assert subprocess.run([*command, "solve", "x", "--eta", "1"], capture_output=True).returncode == 2
    assert "reproduce" in subprocess.run(command, check=False, capture_output=True, text=True).stdout


def test_modules_in_the_current_folder_can_be_imported(tmp_path):
    """The installed command, unlike `python -m lazymdp`, would not find them by itself."""
    registration = "gym.register('OwnLake-v0', 'gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv')"
    (tmp_path / "own_lake.py").write_text(f"import gymnasium as gym\n{registration}\n")
    (tmp_path / "statistics.py").write_text("raise ImportError('this file hides a module of Python')\n")
    code = "import sys; sys.path.remove(''); from lazymdp.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "solve", "own_lake:OwnLake-v0", "--eta", "0.1"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stderr


def test_brackets_in_a_message_are_shown(capsys):
    """Rich would take them for its markup, and `pip install 'lazymdp[deep]'` would lose its extra."""
    assert main(["solve", "[deep].npz", "--eta", "0.1"]) == 2
    assert "there is no file [deep].npz" in capsys.readouterr().err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("train", "resume", "evaluate")])
def test_help_describes_defaults_in_words(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "None" not in text and "False" not in text


def test_help_breaks_lines_only_where_they_are_full(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    [agent] = [line for line in capsys.readouterr().out.splitlines() if "AGENT  " in line]
    assert "The folder of a run" in agent and "(give --trust)" in agent
