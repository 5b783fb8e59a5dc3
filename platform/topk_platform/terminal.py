"""Printing text from data: control characters are written out, so that the terminal does not obey them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

__all__ = ["PlainConsole", "printable"]

# Control characters except line feed and tab, and characters that reverse the direction of text.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ENDS = re.compile(r"[\n\t\u2028\u2029]")


def printable(text: str, *, line: bool = False) -> str:
    r"""Return a text with its control characters written out, so that a terminal does not obey them.

    Names of classes and files, reasons and the like come from data. Escape sequences in them could change other text on
    the terminal, its title, or the clipboard.

    Args:
        text: The text.
        line: Whether the text must stay on one line, so that line ends are written out as well.

    Example:
        >>> print(printable("oak\x1b[2J"), printable("a\nb", line=True))
        oak\x1b[2J a\x0ab
    """
    text = _STEERING.sub(_written, text)
    return _ENDS.sub(_written, text) if line else text


def _written(match: re.Match[str]) -> str:
    number = ord(match.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class PlainConsole(Console):
    """A console that prints its own colours, but writes out escape sequences in texts."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as rich prints it; it is made :func:`printable` before it is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the printed segments, with each text made :func:`printable`."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))
