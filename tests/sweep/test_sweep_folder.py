"""The folder of a sweep, local, remote with and without folders, and on S3: whole files, checkpoints, and sweeps."""

import threading

import pytest

from lazymdp.sweep.sweep_folder import SweepFolder


@pytest.fixture(params=["local", "s3", "local://", "memory://"])
def folder(request, tmp_path):
    """An empty folder: fsspec's `local://` stands for all file systems on which folders have to be made, like SFTP."""
    if request.param == "local":
        return SweepFolder(tmp_path / "sweep")
    if request.param != "s3":
        pytest.importorskip("fsspec")
        return SweepFolder(f"{request.param}{tmp_path}/new/sweep")
    name = request.node.name.replace("[", "-").replace("]", "")
    return SweepFolder(f"{request.getfixturevalue('bucket')}/{name}")


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def test_small_files_are_written_read_and_removed(folder, tmp_path):
    assert folder.read("runs/a/result.json") is None and folder.names("runs") == set()
    folder.write_sealed("runs/a/result.json", {"rows": [1, 2]})
    folder.write("runs/b/result.json", '{"rows": [], "checksum": "00000000"}')
    assert folder.names("runs") == {"a", "b"} and folder.names("runs/a") == {"result.json"}
    assert folder.read_sealed("runs/a/result.json") == {"rows": [1, 2]}
    assert folder.read_sealed("runs/b/result.json") is None  # its checksum does not match
    source = tmp_path / "damaged"
    source.write_bytes(bytes(range(256)))
    folder.send_file(source, "runs/c/result.json")
    assert folder.read_sealed("runs/c/result.json") is None  # it is not even text
    folder.remove("runs/c")
    folder.remove("runs/b")
    folder.remove("runs/nothing")
    assert folder.names("runs") == {"a"}


def test_a_working_copy_is_what_was_sent(folder):
    with folder.working_copy("runs/a/training") as copy:
        (copy.path / "replay-1.safetensors").write_text("part")
        (copy.path / "last.safetensors").write_text("checkpoint 1")
        copy.send()
    with folder.working_copy("runs/a/training") as copy:
        assert (copy.path / "last.safetensors").read_text() == "checkpoint 1"
        (copy.path / "replay-1.safetensors").unlink()
        (copy.path / "replay-2.safetensors").write_text("another part")
        copy.send_if_changed("last.safetensors")  # nothing: there is no new checkpoint
        (copy.path / "last.safetensors").write_text("checkpoint 2!")
        copy.send_if_changed("last.safetensors")
    assert folder.names("runs/a/training") == {"replay-2.safetensors", "last.safetensors"}
    assert folder.read("runs/a/training/last.safetensors") == "checkpoint 2!"
    with folder.working_copy("runs/a/training") as copy:
        copy.clear()
    assert folder.names("runs/a/training") == set()


def test_files_are_copied_in_one_step(folder, tmp_path):
    (tmp_path / "table").write_text("rows")
    folder.send_file(tmp_path / "table", "results.parquet")
    assert folder.names("") == {"results.parquet"}
    with folder.local_file("results.parquet") as path:
        assert path.read_text() == "rows"


def test_a_checkpoint_is_completed_by_the_file_that_is_sent_last(bucket, monkeypatch):
    folder = SweepFolder(f"{bucket}/order")
    sent = []
    with folder.working_copy("a") as copy:
        for name in ("last.safetensors", "metrics.csv", "best.safetensors", "replay-1.safetensors", ".lock"):
            (copy.path / name).write_text(name)
        monkeypatch.setattr(copy._files, "put_file", lambda path, remote: sent.append(remote))
        copy.send()
    assert [one.rpartition("/")[2] for one in sent] == [
        "best.safetensors", "metrics.csv", "replay-1.safetensors", "last.safetensors",
    ]  # fmt: skip


def test_a_file_is_created_once(bucket):
    folder = SweepFolder(f"{bucket}/created")
    made = []
    both = [
        threading.Thread(target=lambda text=text: made.append(folder.create("lease-1.json", text))) for text in "ab"
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(made) == [False, True] and folder.read("lease-1.json") in ("a", "b")


def test_every_failure_of_a_remote_folder_is_an_os_error(bucket, monkeypatch):
    folder = SweepFolder(f"{bucket}/lost")

    class NoConnection(Exception):
        pass

    def fails(*_, **__):
        raise NoConnection("no route to the endpoint")

    def fetch():
        with folder.local_file("a"):
            pass

    for name in ("cat_file", "pipe_file", "ls", "exists", "put_file", "get_file"):
        monkeypatch.setattr(folder._files, name, fails, raising=False)
    for call in (
        lambda: folder.read("a"), lambda: folder.write("a", "text"), lambda: folder.names("a"),
        lambda: folder.remove("a"), lambda: folder.send_file("a", "b"), fetch,
    ):  # fmt: skip
        with pytest.raises(OSError, match="NoConnection: no route to the endpoint"):
            call()


def test_a_password_in_an_address_is_not_shown():
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="nowhere://host/study: Protocol not known") as raised:
        SweepFolder("nowhere://me:hunter22@host/study")
    assert "hunter22" not in str(raised.value)


def test_a_file_and_an_unknown_protocol_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file: give a folder"):
        SweepFolder(tmp_path / "file")
    for address in ("", "/", "file://", "s3://"):  # such as an empty variable of the shell
        with pytest.raises(ValueError, match=f"the folder of the sweep is '{address}', expected a local folder, or an"):
            SweepFolder(address)
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="nowhere://bucket: Protocol not known"):
        SweepFolder("nowhere://bucket")


def test_without_fsspec_the_line_that_installs_it_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"pip install 'lazymdp\[cloud\]'"):
        SweepFolder("s3://bucket/study")


def test_no_bucket_is_made(bucket, tmp_path):
    folder = SweepFolder("s3://another/study")
    (tmp_path / "table").write_text("rows")
    for write in (
        lambda: folder.write("plan.json", "text"), lambda: folder.create("lease-1.json", "text"),
        lambda: folder.send_file(tmp_path / "table", "results.parquet"),
    ):  # fmt: skip
        with pytest.raises(OSError, match="(?i)bucket|another"):
            write()
    assert not folder._files.exists("another")


@pytest.mark.sweep
def test_a_sweep_in_a_bucket_gives_the_table_of_a_local_one(bucket, write_study, tmp_path):
    pytest.importorskip("jax")
    from lazymdp.sweep.results_table import read_table
    from lazymdp.sweep.run_sweep import Prepared, Where, run_sweep
    from lazymdp.sweep.supervise import Limits

    where, path = Where(2, limits=Limits(checkpoint_seconds=0.05)), write_study()
    tables = []
    for address in (f"{bucket}/sweep", tmp_path / "sweep"):
        sweep = run_sweep(Prepared(path, address), where)
        assert len(sweep.results) == 2 and not sweep.set_aside, sweep.set_aside
        tables.append(read_table(SweepFolder(address)))
        for name in sweep.results:
            assert SweepFolder(address).names(f"runs/{name}") == {"result.json", "agent"}
    assert tables[0] == tables[1] and Prepared(path, f"{bucket}/sweep").plan.runs == 0
