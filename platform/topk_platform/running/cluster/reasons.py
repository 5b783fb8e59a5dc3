"""The reason in Ray's text about a lost or failed process."""

from __future__ import annotations

import re

__all__ = ["reason_in"]

_LENGTH = 600
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_GUESSES = " Some common causes include"  # the beginning of a paragraph of guesses


def reason_in(text: str) -> str:
    r"""Return the last exception of a traceback with its whole message, without Ray's details and guesses.

    Details are indented lines such as an actor's class and id.

    Args:
        text: A traceback, or the message of one of Ray's exceptions.

    Returns:
        One line of at most 600 characters; "no reason is known" if the text is empty.

    Example:
        >>> reason_in("The actor died.\n\tclass_name: Worker\nIts owner died.\nThe actor never ran.")
        'The actor died. Its owner died. The actor never ran.'
        >>> reason_in("ray::train()\n  File 'train.py'\nValueError: no images")
        'ValueError: no images'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line[0].isspace()]
    begins = [number for number, line in enumerate(lines) if _EXCEPTION.match(line)]
    last = lines[begins[-1] :] if begins else lines
    return " ".join(dict.fromkeys(last)).partition(_GUESSES)[0][:_LENGTH] or "no reason is known"
