"""Files with checksums: JSON texts, and named arrays in safetensors files.

`sealed` adds a checksum to a JSON object, and `unsealed` verifies it. A safetensors file holds a sealed object in its
header, `about`, which includes a checksum of the arrays. Every error is a `Damaged`, which names the file.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._files import checksum, replacing

_CHUNK = 2**24


class Damaged(ValueError):
    """A file of a run is damaged. The message names the file, the damage and the remedy."""

    def __init__(self, path: Path, damage: object, remedy: str = "") -> None:
        super().__init__(f"{path} is damaged ({damage}){remedy and f': {remedy}'}.")
        self.damage = damage


def sealed(about: dict[str, Any], indent: int | None = None) -> str:
    """Returns an object as JSON, with a checksum of its content."""
    whole: dict[str, Any] = json.loads(json.dumps(about))  # as it will be read: tuples become lists
    return json.dumps({**whole, "checksum": _content(whole)}, indent=indent)


def unsealed(text: str) -> dict[str, Any]:
    """Returns the object in a text that `sealed` wrote; raises `ValueError` if its content has changed."""
    about = json.loads(text)
    if not isinstance(about, dict):
        raise ValueError("it is not a JSON object")
    if about.pop("checksum", None) != _content(about):
        raise ValueError("its checksum does not match its content")
    return about


def _content(about: dict[str, Any]) -> str:
    return checksum({}, json.dumps(about, sort_keys=True))


def read_about(path: Path) -> dict[str, Any]:
    """Returns the description of a safetensors file, without reading its arrays."""
    try:
        with _safetensors().safe_open(path, framework="numpy") as file:
            return unsealed((file.metadata() or {}).get("about", "null"))
    except Exception as error:  # safetensors raises errors of many kinds for a damaged file
        raise _named(path, error) from error


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Returns the arrays and the description of a safetensors file, both verified."""
    about = read_about(path)
    try:
        with _safetensors().safe_open(path, framework="numpy") as file:
            arrays = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except Exception as error:
        raise _named(path, error) from error
    if checksum(arrays) != about.pop("arrays", None):
        raise Damaged(path, "its checksum does not match its content")
    return arrays, about


def write_arrays(path: Path, arrays: dict[str, Any], about: dict[str, Any]) -> None:
    """Writes arrays and their description, with checksums, in one step."""
    text = sealed({**about, "arrays": checksum(arrays)})
    with replacing(path) as temporary:
        try:
            _safetensors().numpy.save_file(arrays, temporary, metadata={"about": text})
        except _safetensors().SafetensorError as error:  # for example, a full disk
            raise OSError(f"{path} cannot be written ({error}); the previous file is unchanged.") from error


def file_checksum(path: Path, size: int | None = None) -> str:
    """Returns the CRC-32 of a file, or of its first `size` bytes."""
    crc, left = 0, path.stat().st_size if size is None else size
    with open(path, "rb") as file:
        while left > 0 and (part := file.read(min(left, _CHUNK))):
            crc, left = zlib.crc32(part, crc), left - len(part)
    return f"{crc:08x}" if left <= 0 else "too short"


def _named(path: Path, error: Exception) -> Exception:
    """Returns an error of reading a file as one that names the file, as a `FileNotFoundError` already does."""
    if isinstance(error, FileNotFoundError | ImportError):
        return error
    if isinstance(error, OSError):  # safetensors leaves out the name
        return OSError(f"{path} cannot be read: {error}.")
    return Damaged(path, str(error) or type(error).__name__)


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("checkpoints need safetensors: pip install 'lazymdp[deep]'") from error
    return safetensors
