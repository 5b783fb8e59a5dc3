"""Text from data on a terminal: what would steer the terminal is shown, not obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

__all__ = ["PlainConsole", "printable"]

# Control characters but for the line's end and the tabulator, and what turns the order of letters round.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ENDS = re.compile(r"[\n\t\u2028\u2029]")


def printable(text: str, *, line: bool = False) -> str:
    r"""Return a text with its control characters written out, so that a terminal obeys none of them.

    Names of classes and files, reasons and the like come from data, and a terminal's escapes in them could change
    what is shown before or after them, or its title, or the clipboard.

    Args:
        text: The text.
        line: Whether it is part of a line, so that line ends in it are written out as well.

    Example:
        >>> print(printable("oak\x1b[2J"), printable("a\nb", line=True))
        oak\x1b[2J a\x0ab
    """
    text = _STEERING.sub(_written, text)
    return _ENDS.sub(_written, text) if line else text


def _written(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class PlainConsole(Console):
    """A console whose own colours and movements reach the terminal, and none that a text brings along."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as rich prints it, made :func:`printable` before it is measured."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is printed, each of its texts :func:`printable`."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))
