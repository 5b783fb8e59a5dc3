"""MathML as TeX would space it: what the converter leaves to browsers, and browsers set too wide or too narrow."""

from __future__ import annotations

import xml.etree.ElementTree as ET

__all__ = ["laid_out"]

_NAMESPACE = ' xmlns="http://www.w3.org/1998/Math/MathML"'
_THIN = "0.167em"
_OPENING, _CLOSING = "([{⟨⌊⌈", ")]}⟩⌋⌉"
_PLAIN = "∂|‖"
"""Signs that browsers space or stretch as operators, and TeX sets like letters."""
_SUMS = "∑∏"
_STYLED = {"mfrac", "munder", "munderover"}
_LIMITS = {"max", "min", "sup", "inf", "lim"}


def laid_out(mathml: str) -> str:
    """Return the formula with function names, signs and large brackets spaced and sized as in TeX."""
    root = ET.fromstring(mathml.replace(_NAMESPACE, ""))  # noqa: S314 - made by the converter
    for row in list(root.iter("mrow")):
        _spread_styles(row)
        _grouped_brackets(row)
    for element in list(root.iter()):
        _words(element)
        _signs(element)
        _limits(element)
    for row in list(root.iter("mrow")):
        _minus_signs(row)
        _function_names(row)
    root.set("xmlns", "http://www.w3.org/1998/Math/MathML")
    return ET.tostring(root, encoding="unicode")


def _spread_styles(row: ET.Element) -> None:
    r"""Put the style of ``\textstyle`` on single elements: it encloses all that follows, also a closing bracket."""
    for style in row.findall("mstyle"):
        position = list(row).index(style)
        row.remove(style)
        for offset, child in enumerate(list(style)):
            styled = ET.Element("mstyle", style.attrib)
            styled.append(child)
            row.insert(
                position + offset, styled if child.tag in _STYLED or (child.text or "·") in _SUMS else child
            )


def _base(element: ET.Element) -> ET.Element:
    """Return what a sub- or superscript stands at; any other element is its own base."""
    return element[0] if element.tag in ("msub", "msup", "msubsup", "munder", "munderover") else element


def _is_large(element: ET.Element, brackets: str) -> bool:
    base = _base(element)
    return base.tag == "mo" and "minsize" in base.attrib and (base.text or "") in brackets


def _grouped_brackets(row: ET.Element) -> None:
    r"""Put the content of ``\bigl( ... \bigr)_+`` into a row of its own.

    A bracket at which a subscript stands has no row to stretch in: browsers draw it small and too low.
    """
    start: list[int] = []
    position = 0
    while position < len(row):
        child = row[position]
        if _is_large(child, _OPENING):
            start.append(position)
        elif start and _is_large(child, _CLOSING):
            begin = start.pop()
            if child.tag != "mo":
                _group(row, begin, position)
                position = begin
        position += 1


def _group(row: ET.Element, begin: int, end: int) -> None:
    scripted = row[end]
    inside = ET.Element("mrow")
    inside.extend([*row[begin:end], scripted[0]])
    scripted[0] = inside
    row[begin : end + 1] = [scripted]


def _words(element: ET.Element) -> None:
    r"""One element for ``\mathrm{softmax}``, which is converted letter by letter."""
    upright = [child for child in element if child.tag == "mi" and child.get("mathvariant") == "normal"]
    if element.tag == "mrow" and len(upright) == len(element) > 1:
        text = "".join(child.text or "" for child in upright)
        element.clear()
        element.tag, element.text = "mi", text


def _signs(element: ET.Element) -> None:
    if element.tag == "mo" and element.text == "/":
        element.attrib |= {"lspace": "0", "rspace": "0"}
    elif element.tag == "mo" and element.text and element.text in _PLAIN:
        element.tag, element.attrib = "mi", {"mathvariant": "normal"}


def _limits(element: ET.Element) -> None:
    """Below the name in a line of its own, beside it in a sentence; browsers decide by ``movablelimits``."""
    if element.tag == "msub" and element[0].text in _LIMITS:
        element.tag, element[0].tag = "munder", "mo"
        element[0].attrib = {"movablelimits": "true", "lspace": "0", "rspace": "0"}


def _minus_signs(row: ET.Element) -> None:
    """A minus after a sign or an opening bracket belongs to what follows."""
    before = None
    for child in row:
        if child.tag == "mo" and child.text == "−" and _starts_a_term(before):
            child.set("form", "prefix")
        before = child


def _starts_a_term(before: ET.Element | None) -> bool:
    if before is None or before.tag == "mspace":
        return True
    base = _base(before)
    return before.tag == "mo" and (base.text or "") not in _CLOSING


def _function_names(row: ET.Element) -> None:
    """A thin space between log, max, softmax, ... and a letter, a number or a fraction beside it."""
    before: ET.Element | None = None
    for child in list(row):
        if _is_name(child):
            child.tag = "mi" if child.tag == "mo" else child.tag
            if _ends_in_a_letter(before):
                _space_at(row, list(row).index(child))
        elif before is not None and _is_name(before) and _starts_with_a_letter(child):
            _space_at(row, list(row).index(child))
        before = child


def _is_name(element: ET.Element) -> bool:
    text = _base(element).text or ""
    return _base(element).tag in ("mi", "mo") and len(text) > 1 and text.isalpha()


def _ends_in_a_letter(element: ET.Element | None) -> bool:
    if element is None or element.tag == "mspace":
        return False
    return element.tag != "mo" or (element.text or "") in _CLOSING


def _starts_with_a_letter(element: ET.Element) -> bool:
    first = _base(element)
    return (first[0] if first.tag == "mrow" and len(first) else first).tag not in ("mo", "mspace")


def _space_at(row: ET.Element, position: int) -> None:
    row.insert(position, ET.Element("mspace", width=_THIN))
