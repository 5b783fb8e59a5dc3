"""What rich shows, as text."""

from __future__ import annotations

import io
import shutil

from rich.console import Console, RenderableType

__all__ = ["as_text"]


def as_text(shown: RenderableType) -> str:
    r"""Return what a terminal as wide as this one would show, without colours; 120 letters wide where there is none.

    Example:
        >>> as_text("a line")
        'a line\n'
    """
    width = shutil.get_terminal_size((120, 24)).columns
    # A notebook would show what is captured as well, and in colours.
    console = Console(file=io.StringIO(), force_jupyter=False, color_system=None, width=width)
    with console.capture() as written:
        console.print(shown)
    return written.get()
