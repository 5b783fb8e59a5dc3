"""Formulas as MathML, which browsers draw themselves: the site needs no network and no script for them.

It brings its own font for them. A browser without a font for mathematics draws small sums, and brackets that do not
stretch.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from formula_layout import laid_out

__all__ = ["setup"]

_LOGGER = logging.getLogger(__name__)
_FONT = Path(__file__).parents[1] / "_static" / "fonts" / "stix-two-math.woff"


@cache
def _characters() -> frozenset[str]:
    return frozenset(map(chr, TTFont(_FONT).getBestCmap()))


def _mathml(node: nodes.Element, display: str = "inline") -> str:
    drawn = laid_out(convert(node.astext().strip(), display=display))
    if missing := set(re.sub("<.*?>", "", drawn)) - _characters():
        signs = " ".join(sorted(missing))
        _LOGGER.warning(
            "the font for formulas has no %s; fonts/LICENSE.txt says how it is made", signs, location=node
        )
    return drawn


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(_mathml(node))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.math_block) -> None:
    number = get_node_equation_number(writer, node) if node["number"] else ""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(f'<span class="eqno">({number})</span>' if number else "")
    writer.body.append(_mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer ``native_mathml``, for ``html_math_renderer``."""
    app.add_html_math_renderer("native_mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
