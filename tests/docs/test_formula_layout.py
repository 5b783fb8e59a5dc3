"""Formulas of the site: spaces, signs and brackets as TeX sets them, on MathML as the converter writes it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).parents[2] / "docs" / "extensions"
LAID_OUT = runpy.run_path(str(EXTENSIONS / "formula_layout.py"))["laid_out"]
THIN = '<mspace width="0.167em" />'


def laid_out(row: str) -> str:
    formula = LAID_OUT(f'<math xmlns="http://www.w3.org/1998/Math/MathML"><mrow>{row}</mrow></math>')
    assert formula.startswith('<math xmlns="http://www.w3.org/1998/Math/MathML"><mrow>')
    return formula.partition("<mrow>")[2].removesuffix("</mrow></math>")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("<mi>τ</mi><mi>log</mi><mi>p</mi>", f"<mi>τ</mi>{THIN}<mi>log</mi>{THIN}<mi>p</mi>"),
        ("<mo>−</mo><mi>log</mi><mo>(</mo>", '<mo form="prefix">−</mo><mi>log</mi><mo>(</mo>'),
        ("<mo>)</mo><mi>log</mi><mo>(</mo>", f"<mo>)</mo>{THIN}<mi>log</mi><mo>(</mo>"),
        ("<mi>s</mi><mo>min</mo><mo>(</mo>", f"<mi>s</mi>{THIN}<mi>min</mi><mo>(</mo>"),
        ("<mi>p</mi><mo>−</mo><mn>1</mn>", "<mi>p</mi><mo>−</mo><mn>1</mn>"),
        ("<mo>=</mo><mo>−</mo><mn>1</mn>", '<mo>=</mo><mo form="prefix">−</mo><mn>1</mn>'),
        ("<mo>∂</mo><mi>L</mi>", '<mi mathvariant="normal">∂</mi><mi>L</mi>'),
        ("<mo>|</mo><mi>s</mi><mo>|</mo>", '<mi mathvariant="normal">|</mi><mi>s</mi><mi mathvariant="normal">|</mi>'),
    ],
)  # fmt: skip
def test_names_and_signs_are_spaced_as_in_tex(row: str, expected: str) -> None:
    assert laid_out(row) == expected


def test_a_word_is_one_element() -> None:
    letters = "".join(f'<mi mathvariant="normal">{letter}</mi>' for letter in "softmax")
    assert laid_out(f"<mrow>{letters}</mrow><mo>(</mo>") == "<mi>softmax</mi><mo>(</mo>"


def test_the_font_of_the_site_is_one_for_mathematics() -> None:
    tools = pytest.importorskip("fontTools.ttLib", reason="the extra `tools` is not installed")
    font = tools.TTFont(EXTENSIONS.parent / "_static" / "fonts" / "stix-two-math.woff")
    assert "MATH" in font and {ord(sign) for sign in "∑∏∂≤𝑥𝛼ℎ"} <= set(font.getBestCmap())
