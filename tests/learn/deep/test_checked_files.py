"""Checksums of JSON texts, arrays and files."""

import json

import numpy as np
import pytest

pytest.importorskip("safetensors")

from lazymdp.learn.deep.checked_files import (
    Damaged,
    file_checksum,
    read_about,
    read_arrays,
    sealed,
    unsealed,
    write_arrays,
)

ABOUT = {"step": 7, "quality": -0.1, "parts": {"a": "b"}, "size": (1, 2), "none": None}


def test_a_text_is_read_as_it_was_written_and_refused_if_it_was_changed():
    text = sealed(ABOUT, indent=2)
    assert unsealed(text) == {**ABOUT, "size": [1, 2]} == unsealed(json.dumps(json.loads(text), sort_keys=True))
    for changed in (text.replace("7", "8"), text.replace("step", "stop"), text.replace("checksum", "chocksum"), "[]"):
        assert changed != text
        with pytest.raises(ValueError, match="checksum does not match|not a JSON object"):
            unsealed(changed)


def test_every_damaged_file_is_refused_by_name_or_holds_the_same_arrays(tmp_path):
    """Random changes of bytes and truncations; only spaces that fill up the header do not matter."""
    path, rng, refused = tmp_path / "x.safetensors", np.random.default_rng(0), 0
    arrays = {"a": np.arange(12.0).reshape(3, 4), "b": np.zeros(0), "c": np.array(True)}
    write_arrays(path, arrays, ABOUT)
    whole = path.read_bytes()
    for case in range(600):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged if case % 4 else whole[: rng.integers(len(whole))])
        try:
            found, about = read_arrays(path)
        except Damaged as error:
            refused += 1
            assert str(error).startswith(f"{path} is damaged (")
            continue
        assert about == {**ABOUT, "size": [1, 2]} and found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
    assert refused > 500


def test_the_description_is_read_without_the_arrays_and_errors_of_the_system_name_the_file(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.zeros(3)}, ABOUT)
    assert read_about(path)["step"] == 7
    with pytest.raises(FileNotFoundError):
        read_about(tmp_path / "none")
    with pytest.raises(OSError, match=f"^{tmp_path} cannot be read: "):  # a folder in place of the file
        read_about(tmp_path)


def test_the_checksum_of_a_file_or_of_its_beginning(tmp_path):
    (tmp_path / "a").write_bytes(b"some text")
    (tmp_path / "b").write_bytes(b"some")
    assert file_checksum(tmp_path / "a", 4) == file_checksum(tmp_path / "b") != file_checksum(tmp_path / "a")
    assert file_checksum(tmp_path / "b", 5) == "too short"
