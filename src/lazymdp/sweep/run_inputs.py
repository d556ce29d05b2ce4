"""The files that the runs of a study read: trained runs and saved models that are default policies, and modules."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lazymdp.defaults.sb3 import model_file
from lazymdp.learn.deep.trust import find_run, is_known, names_function, names_module
from lazymdp.sweep.run_spec import RunSpec, reference
from lazymdp.sweep.sweep_folder import SweepFolder

_RUN_FILES = ("config.json", "last.safetensors")
_MODEL_FILE = "model.zip"
"""Name of the copy of a saved model; the user's own name for it must not change the hash."""


@dataclass
class Inputs:
    """Runs and files that runs of a study read, by the hash of their content.

    Attributes:
        base: Folder of the study file, to which its paths are relative.
        files: For each hash, the files by name.
    """

    base: Path
    files: dict[str, dict[str, Path]] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _checksums: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """Returns a default policy with a reference in place of a path; other texts are returned unchanged.

        A path may be relative to the folder of the study file or to the current folder. `RUN:epsilon=0.1` keeps what
        follows the colon.
        """
        if is_known(text) or reference(text) is not None:
            return text
        if text not in self._names:
            self._names[text] = self._named(text)
        return self._names[text]

    def _named(self, text: str) -> str:
        for candidate in dict.fromkeys([str(self.base / text), text]):
            run, file = find_run(candidate), model_file(candidate)
            if run is not None:
                folder, manner = run
                found = self._added({name: folder / name for name in _RUN_FILES})
                return f"{found}:{manner}" if manner else found
            if file is not None:
                return self._added({_MODEL_FILE: file})
        return text

    def _added(self, files: dict[str, Path]) -> str:
        digest = hashlib.sha256()
        for name, path in sorted(files.items()):
            digest.update(f"{name} {path.stat().st_size} ".encode())
            digest.update(path.read_bytes())
        self.files[digest.hexdigest()[:16]] = files
        return f"input:{digest.hexdigest()[:16]}"

    def code_of(self, env: str, default_policy: str) -> tuple[str, ...]:
        """Returns checksums of the modules that a run imports by name, on which its results depend.

        That of a module in a package covers all source files of the package. Other modules that it imports are not
        covered.
        """
        modules = [env.partition(":")[0]] if names_module(env) else []
        if reference(default_policy) is None and names_function(default_policy):
            modules.append(default_policy.partition(":")[0])
        for module in modules:
            if module not in self._checksums:
                self._checksums[module] = _source_checksum(module)
        return tuple(f"{module} {self._checksums[module]}" for module in modules)

    def send(self, folder: SweepFolder) -> None:
        """Copies all files to the folder of a sweep, unless they are there already."""
        for name, files in self.files.items():
            there = folder.names(f"inputs/{name}")
            for file, path in files.items():
                if file not in there:
                    folder.send_file(path, f"inputs/{name}/{file}")


def check_code(spec: RunSpec) -> None:
    """Raises an error if a module that a run imports is not the one that its id stands for."""
    here = Inputs(Path()).code_of(spec.config.env, spec.config.default_policy)
    for wanted, found in zip(spec.code, here, strict=True):
        if found != wanted:
            raise ValueError(
                f"the module {wanted.partition(' ')[0]} is not as it was when the sweep was started: it has been "
                "changed, or this machine has another one or none. Start the sweep again."
            )


def _source_checksum(module: str) -> str:
    """Returns a checksum of the file of a module, or of its package; `unknown` if there is none."""
    sys.path.append(str(Path.cwd()))  # as the commands do
    importlib.invalidate_caches()
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    finally:
        sys.path.pop()
    if found is None:
        return "unknown"
    digest = hashlib.sha256()
    if found.submodule_search_locations is not None:  # a package; one without __init__.py may have several folders
        for folder in map(Path, found.submodule_search_locations):
            for path in sorted(folder.rglob("*.py")):
                if path.is_file():  # Emacs marks files that are being edited by links that lead nowhere
                    digest.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size} ".encode())
                    digest.update(path.read_bytes())
    elif found.origin and Path(found.origin).is_file():
        digest.update(Path(found.origin).read_bytes())
    else:
        return "unknown"
    return digest.hexdigest()[:16]
