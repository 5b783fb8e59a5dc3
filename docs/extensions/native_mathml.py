"""Formulas as MathML, which browsers draw themselves: the site needs no network and no script for them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]


_COMMON = {"&#x029F5;": "\\"}  # the operator of \\setminus, which few fonts have


def _mathml(node: nodes.Element, display: str = "inline") -> str:
    drawn: str = convert(node.astext().strip(), display=display)
    for rare, common in _COMMON.items():
        drawn = drawn.replace(rare, common)
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
