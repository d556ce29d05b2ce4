"""The parts of self-contained pages."""

import base64
import json

import numpy as np
import pytest

from lazymdp._html_page import as_json, asset, filled, packed


def test_placeholders_are_filled_once():
    assert filled("<b>@@NAME@@</b> @@REST@@", {"NAME": "@@REST@@", "REST": "x"}) == "<b>@@REST@@</b> x"
    with pytest.raises(KeyError):
        filled("@@UNKNOWN@@", {})


def test_json_cannot_close_its_script_element():
    text = as_json({"name": "</script><script>"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><script>"}
    with pytest.raises(ValueError):
        as_json(float("nan"))


def test_arrays_are_packed_as_little_endian_numbers():
    for kind in ("f8", "f4", "i4", "u1"):
        found = packed([1, 2, 3], kind)
        assert found["type"] == kind
        assert np.frombuffer(base64.b64decode(found["base64"]), dtype=f"<{kind}").tolist() == [1, 2, 3]


def test_template_files_are_installed():
    assert "uPlot" in asset("uPlot.iife.min.js")
