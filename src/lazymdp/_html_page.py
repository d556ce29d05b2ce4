"""The parts that every self-contained HTML page needs: template files, filled placeholders, and packed arrays."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def asset(name: str, *, package: str = "lazymdp.show", folder: str = "assets") -> str:
    """Returns the text of a template file that is installed with the package."""
    return resources.files(package).joinpath(folder, name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Replaces each placeholder `@@NAME@@` of a template; placeholders inside the parts stay as they are."""
    return re.sub("@@([A-Z_]+)@@", lambda found: parts[found[1]], template)


def as_json(data: Any) -> str:
    """Returns `data` as JSON that can stand inside a script element: it cannot close the element."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def packed(array: ArrayLike, kind: str) -> dict[str, str]:
    """Encodes an array as base64 of little-endian numbers in C order; `kind` is f8, f4, i4 or u1."""
    numbers = np.ascontiguousarray(array, dtype=f"<{kind}")
    return {"type": kind, "base64": base64.b64encode(numbers.tobytes()).decode("ascii")}
