"""One sweep at a time in a folder, local or remote."""

import threading
import time

import pytest

from lazymdp.sweep import sweep_lock
from lazymdp.sweep.sweep_folder import SweepFolder
from lazymdp.sweep.sweep_lock import _Lease, only_sweep

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(sweep_lock, "RENEW_SECONDS", 0.4)


@pytest.fixture(params=["local", "s3", "local://"])
def address(request, tmp_path):
    if request.param == "local://":
        pytest.importorskip("fsspec")
        return f"local://{tmp_path}/new/sweep"
    name = request.node.name.replace("[", "-").replace("]", "")
    return tmp_path / "sweep" if request.param == "local" else f"{request.getfixturevalue('bucket')}/{name}"


def test_a_second_sweep_is_refused_until_the_first_one_ends(address):
    with only_sweep(SweepFolder(address), print) as lost:
        with pytest.raises(ValueError, match="another sweep runs in .*: stop it first"):
            only_sweep(SweepFolder(address), print).__enter__()
        assert not lost()
    with only_sweep(SweepFolder(address), print) as lost:
        assert not lost()


def leases(folder):
    """The owners of the leases in a folder, by file."""
    names = sorted(name for name in folder.names("") if name.startswith("lease"))
    return {name: folder.read_sealed(name)["owner"] for name in names}


def abandoned(bucket, name, number=1):
    """Returns a folder with the lease of a sweep that was killed."""
    folder = SweepFolder(f"{bucket}/{name}")
    about = {"owner": "gone", "machine": "another", "process": 1, "renewals": 7}
    folder.write_sealed(f"lease-{number}.json", about)
    return folder


def test_the_lease_of_a_sweep_that_was_killed_is_taken_over(bucket):
    folder, told = abandoned(bucket, "abandoned"), []
    with only_sweep(folder, told.append) as lost:
        assert list(leases(folder)) == ["lease-2.json"] and "gone" not in leases(folder).values() and not lost()
    assert leases(folder) == {} and len(told) == 1 and "see whether another sweep still runs" in told[0]


@pytest.mark.parametrize("killed", [True, False])
def test_of_two_sweeps_that_start_at_once_only_one_runs(killed, bucket, monkeypatch):
    monkeypatch.setattr(_Lease, "_wait_for_renewal", lambda *_: None)  # what is tested is the moment after it
    folder = abandoned(bucket, "contested") if killed else SweepFolder(f"{bucket}/contested-new")
    outcomes, both, done = [], threading.Barrier(2), threading.Event()
    create = SweepFolder.create

    def at_once(*given):
        both.wait(60.0)
        return create(*given)

    monkeypatch.setattr(SweepFolder, "create", at_once)

    def start():
        try:
            with only_sweep(SweepFolder(folder.address), lambda text: None):
                outcomes.append("runs")
                done.wait(60.0)
        except ValueError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(outcomes) < 2:
        time.sleep(0.05)
    done.set()
    for thread in threads:
        thread.join()
    refused, runs = sorted(outcomes)
    assert runs == "runs" and "another sweep runs in s3://" in refused and leases(folder) == {}


def test_a_sweep_that_has_lost_its_lease_notices(bucket):
    folder = SweepFolder(f"{bucket}/lost-lease")
    with only_sweep(folder, print) as lost:
        abandoned(bucket, "lost-lease", number=2)
        deadline = time.monotonic() + 60.0
        while not lost():
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert leases(folder) == {"lease-2.json": "gone"}  # it is not ours to delete
