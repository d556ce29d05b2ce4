"""The palette: one file spells every color."""

import ast
import re
from pathlib import Path

from lazymdp import _colors

SOURCE = Path(_colors.__file__).parent
HEX = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")


def hex_colors(code):
    """The hex colors inside the strings of Python code."""
    strings = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    return [color for text in strings if isinstance(text, str) for color in HEX.findall(text)]


def rgb_colors(code):
    """The tuples and lists of Python code that look like red, green and blue, with or without opacity."""
    groups = [node.elts for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Tuple | ast.List)]
    numbers = [[getattr(part, "value", None) for part in group] for group in groups if len(group) in (3, 4)]
    return [
        tuple(group)
        for group in numbers
        if all(type(number) is int and 0 <= number < 256 for number in group) and max(group) > 31  # not a move or index
    ]


def test_a_color_is_found_however_it_is_spelled():
    for code in ('"#e8710a"', '"color: #fff"', 'f"{x} #E8710A"'):
        assert hex_colors(code), code
    for code in ("(244, 241, 234)", "[0, 0, 255, 255]", "TILE = (mask, (38, 34, 44))"):
        assert rgb_colors(code), code
    assert not hex_colors('"#eta=0.1"') and not rgb_colors("(0, 1, 2)")


def test_colors_are_spelled_in_one_file_only():
    """Control is orange and lazy is gray everywhere, so no other file of the library spells a color."""
    for path in SOURCE.rglob("*.py"):
        if path.name != "_colors.py":
            code = path.read_text()
            assert not hex_colors(code), path
            if "learn" not in path.parts:  # which draws nothing, and has tuples that describe convolutions
                assert not rgb_colors(code), path
    for path in [*(SOURCE / "show" / "assets").glob("[!u]*.*"), *(SOURCE / "explain" / "page").iterdir()]:
        assert not HEX.findall(path.read_text()), path


def test_the_style_of_matplotlib_uses_the_palette():
    palette = HEX.findall((SOURCE / "_colors.py").read_text())
    style = (SOURCE / "show" / "lazymdp.mplstyle").read_text()
    used = {f"#{color}" for color in re.findall(r"\b[0-9a-f]{6}\b", style)}
    assert {_colors.CONTROL, _colors.LAZY} <= used <= set(palette)


def test_rgb():
    assert _colors.rgb("#000000") == (0, 0, 0)
    assert _colors.rgb(_colors.CONTROL) == (232, 113, 10)
