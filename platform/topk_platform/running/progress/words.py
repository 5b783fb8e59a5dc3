"""Times in words."""

from __future__ import annotations

__all__ = ["duration"]


def duration(seconds: float) -> str:
    """Return a time in words.

    Args:
        seconds: How long.

    Example:
        >>> duration(42.3), duration(750), duration(7500)
        ('42 s', '12 min 30 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
