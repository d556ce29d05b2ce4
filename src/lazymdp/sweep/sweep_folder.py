"""The folder of a sweep: a local folder, or an address such as `s3://bucket/study` that fsspec can open.

* `study.toml`, `plan.json`: the study as it was given, and all of its runs in their order.
* `inputs/HASH/`: copies of the runs and files that runs of the study read.
* `runs/ID/`: a run. `result.json` has its evaluation, `agent/` its trained agent, `half/` its agent at half of its
  final score (at price 0 only), `failed.json` the reason why it was set aside, `progress.json` how far it is, and
  `training/` its checkpoints, which are deleted when it is finished.
* `packs/ID/`: the checkpoint of runs that are trained together, deleted when they are finished.
* `results.parquet`: the table of results.
* `obstacle.json`: why no run can be started for now.
* `lease-N.json`: which sweep runs in a remote folder (see `sweep_lock`).

A run is done if its `result.json` exists and its checksum matches. Files are written in one step: a full disk or a
crash leaves the previous ones. In a remote folder, a run works on a local copy, which it fetches when it starts and
sends after each checkpoint. The file that completes a checkpoint is sent last, so that what lies in the remote folder
is always a whole checkpoint. Every failure of a remote folder is an `OSError`.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from lazymdp._files import replacing, write_text
from lazymdp.learn.deep.checked_files import sealed, unsealed
from lazymdp.sweep.redact import without_passwords

STUDY, PLAN, RESULTS = "study.toml", "plan.json", "results.parquet"
OBSTACLE = "obstacle.json"
RESULT, FAILED, PROGRESS = "result.json", "failed.json", "progress.json"
_SENT_LAST = ("last.safetensors", "config.json", "population.safetensors")
"""Files that complete a checkpoint, or a folder: they are sent after all others."""
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def _as_os_errors(method: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Makes a method raise `OSError` for whatever the library of a remote file system raises."""

    @functools.wraps(method)
    def wrapped(*given: _Given.args, **named: _Given.kwargs) -> _Made:
        try:
            return method(*given, **named)
        except (OSError, ImportError):
            raise
        except Exception as error:
            if getattr(given[0], "local", None) is not None:
                raise
            raise OSError(f"{type(error).__name__}: {error}") from error

    return wrapped


class SweepFolder:
    """The folder of a sweep.

    Args:
        address: A local path, or an address with a protocol of fsspec, such as `s3://bucket/study`.
    """

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self.address = os.fspath(address).removeprefix("file://").rstrip("/")
        if not self.address or self.address.endswith(":"):
            raise ValueError(
                f"the folder of the sweep is {os.fspath(address)!r}, expected a local folder, or an address such as "
                "s3://bucket/study."
            )
        self.local = None if "://" in self.address else Path(self.address).absolute()
        if self.local is not None and self.local.exists() and not self.local.is_dir():
            raise FileExistsError(f"{self.local} is a file: give a folder for the sweep.")
        self._files: Any = None
        self._root = ""
        if self.local is None:
            self._files, self._root = _file_system(self.address)

    # -- small files -------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        """The address without a password, for messages."""
        return without_passwords(self.address)

    @_as_os_errors
    def read(self, name: str) -> str | None:
        """Returns the text of a file, or None if there is none. What is not text in a damaged file is replaced."""
        try:
            if self.local is not None:
                return (self.local / name).read_text(encoding="utf-8", errors="replace")
            self._files.invalidate_cache()
            return str(self._files.cat_file(f"{self._root}/{name}").decode(errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    @_as_os_errors
    def create(self, name: str, text: str) -> bool:
        """Writes a file of a remote folder unless it exists; returns whether it was written.

        On S3 this is one step. Other file systems may first look and then write.
        """
        try:
            self._files.invalidate_cache()
            path, content = f"{self._root}/{name}", text.encode()
            _with_folder(self._files, path, lambda: self._files.pipe_file(path, content, mode="create"))
        except FileExistsError:
            return False
        except OSError:
            if self.read(name) is None:
                raise
            return False
        return True

    @_as_os_errors
    def write(self, name: str, text: str) -> None:
        """Writes a file in one step."""
        if self.local is None:
            path, content = f"{self._root}/{name}", text.encode()
            _with_folder(self._files, path, lambda: self._files.pipe_file(path, content))
            return
        (self.local / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(self.local / name, text)

    def read_sealed(self, name: str) -> dict[str, Any] | None:
        """Returns the object in a file that `write_sealed` wrote; None if there is none, or if it is damaged."""
        text = self.read(name)
        try:
            return None if text is None else unsealed(text)
        except ValueError:
            return None

    def write_sealed(self, name: str, about: dict[str, Any]) -> None:
        """Writes an object as JSON with a checksum, in one step."""
        self.write(name, self.sealed(about))

    @staticmethod
    def sealed(about: dict[str, Any]) -> str:
        """Returns what `write_sealed` writes."""
        return sealed(about, indent=1) + "\n"

    @_as_os_errors
    def names(self, name: str) -> set[str]:
        """Returns the names of the files and folders in a folder; an empty set if there is no such folder."""
        try:
            if self.local is not None:
                return set(os.listdir(self.local / name))
            self._files.invalidate_cache()
            return {
                path.rstrip("/").rpartition("/")[2]
                for path in self._files.ls(f"{self._root}/{name}".rstrip("/"), detail=False)
            }
        except (FileNotFoundError, NotADirectoryError):
            return set()

    @_as_os_errors
    def remove(self, name: str) -> None:
        """Deletes a file or a folder if it exists."""
        if self.local is None:
            self._files.invalidate_cache()
            if self._files.exists(path := f"{self._root}/{name}"):
                self._files.rm(path, recursive=True)
            return
        shutil.rmtree(self.local / name, ignore_errors=True)
        if (self.local / name).is_file():
            (self.local / name).unlink()

    # -- folders -----------------------------------------------------------------------------------------------------

    @contextmanager
    def working_copy(self, name: str) -> Iterator[WorkingCopy]:
        """Yields a local folder with the files of a folder; a local folder is used as it is."""
        if self.local is not None:
            (self.local / name).mkdir(parents=True, exist_ok=True)
            yield WorkingCopy(self.local / name, None, "")
            return
        with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-", ignore_cleanup_errors=True) as scratch:
            copy = WorkingCopy(Path(scratch), self._files, f"{self._root}/{name}")
            copy.fetch()
            yield copy

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        """Yields a local path of a file; a remote one is downloaded."""
        if self.local is not None:
            yield self.local / name
            return
        with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-") as scratch:
            copy = Path(scratch) / Path(name).name
            self._fetch_file(name, copy)
            yield copy

    @_as_os_errors
    def _fetch_file(self, name: str, target: Path) -> None:
        self._files.get_file(f"{self._root}/{name}", str(target))

    @_as_os_errors
    def send_file(self, source: Path, name: str) -> None:
        """Copies a local file into the folder in one step."""
        if self.local is None:
            path = f"{self._root}/{name}"
            _with_folder(self._files, path, lambda: self._files.put_file(str(source), path))
            return
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            shutil.copyfile(source, part)


class WorkingCopy:
    """A local folder that is kept in step with a remote one, if there is a remote one.

    Args:
        path: The local folder.
        files: The remote file system; None if the local folder is the folder itself.
        remote: Path of the remote folder.
    """

    def __init__(self, path: Path, files: Any, remote: str) -> None:
        self.path, self._files, self._remote = path, files, remote
        self._sent: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Downloads all files of the remote folder."""
        self._files.invalidate_cache()
        for found in self._files.find(self._remote):
            name = found[len(self._remote) :].lstrip("/")
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(found, str(target))
            self._sent[name] = _stamp(target)

    def send(self) -> None:
        """Uploads the files that have changed, then deletes remote files that no longer exist here."""
        if self._files is None:
            return
        here = [entry for entry in self.path.rglob("*") if entry.is_file() and not entry.name.startswith(".")]
        names = {entry.relative_to(self.path).as_posix(): entry for entry in here}
        for name in sorted(names, key=lambda name: (Path(name).name in _SENT_LAST, name)):
            stamp = _stamp(names[name])
            if self._sent.get(name) != stamp:
                self._put(names[name], f"{self._remote}/{name}")
                self._sent[name] = stamp
        for name in sorted(set(self._sent) - set(names)):
            self._files.rm_file(f"{self._remote}/{name}")
            del self._sent[name]

    def _put(self, source: Path, path: str) -> None:
        _with_folder(self._files, path, lambda: self._files.put_file(str(source), path))

    def send_if_changed(self, name: str) -> None:
        """Uploads all changes if a file has changed since it was sent last, or is new."""
        if self._files is not None and (file := self.path / name).exists() and self._sent.get(name) != _stamp(file):
            self.send()

    def clear(self) -> None:
        """Deletes all files, here and in the remote folder."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.send()


def _stamp(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size


def _with_folder(files: Any, path: str, write: Callable[[], Any]) -> None:
    """Writes a remote file; where there is no folder for it, as on SFTP but not on S3, makes one first."""
    try:
        write()
    except FileNotFoundError:
        _make_folder(files, path.rpartition("/")[0])
        write()


def _make_folder(files: Any, path: str) -> None:
    """Makes a remote folder and those above it, but no bucket: its name may be a mistake."""
    if "/" in path and not files.isdir(path):
        _make_folder(files, path.rpartition("/")[0])
        with suppress(FileExistsError):  # another process may have made it
            files.mkdir(path, create_parents=False)


def _file_system(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{without_passwords(address)} needs fsspec: pip install 'lazymdp[cloud]'") from error
    try:
        return fsspec.core.url_to_fs(address)  # type: ignore[no-any-return, unused-ignore]
    except ValueError as error:
        raise ValueError(
            f"{without_passwords(f'{address}: {error}')}. Give a local folder, or an address such as s3://bucket/study."
        ) from error
    except ImportError as error:
        shown = without_passwords(address)
        raise ImportError(f"{shown} needs another package ({error}): pip install 'lazymdp[cloud]'") from error
