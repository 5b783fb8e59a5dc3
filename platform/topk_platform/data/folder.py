"""The folder of datasets on this machine; it determines no result, so it is not part of a trial's key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topk_platform.specs.checks import absolute, check_not_blank

__all__ = ["cache_folder", "data_at", "data_folder", "pixel_folder", "use_data_folder"]

_VARIABLE = "TOPK_DATA"
_DEFAULT = "data"
_CACHE_VARIABLE = "TOPK_CACHE"
_CACHE_DEFAULT = ".topk"


def data_folder(inside: str = "") -> Path:
    """Return the absolute path of the folder of datasets: the environment's ``TOPK_DATA``, or else ``data``.

    Args:
        inside: A path in that folder, which is returned then; ``~`` is the home folder.

    Functions of datasets look for their files here. A path among their options would be part of the arms' identity.
    The fingerprint identifies the data instead, wherever the files are.

    Example:
        >>> with data_at("/mnt/datasets"):
        ...     print(data_folder() / "birds")
        /mnt/datasets/birds
    """
    return absolute(os.environ.get(_VARIABLE) or _DEFAULT) / os.path.expanduser(inside)


def use_data_folder(folder: str | Path) -> None:
    """Make ``folder`` the folder of datasets of this process and its children.

    Raises:
        UserError: if ``folder`` is blank.
    """
    check_not_blank("data", folder)
    os.environ[_VARIABLE] = str(absolute(folder))


@contextmanager
def data_at(folder: str | Path | None) -> Iterator[None]:
    """Make ``folder`` the folder of datasets within the block; None changes nothing."""
    if folder is None:
        yield
        return
    before = os.environ.get(_VARIABLE)
    use_data_folder(folder)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def cache_folder() -> Path:
    """Return the folder for data derived from datasets: ``TOPK_CACHE``, or ``.topk`` in the data folder.

    It may be deleted at any time. Features and lists of files are always kept there; a list takes a hundred bytes per
    image.
    """
    named = os.environ.get(_CACHE_VARIABLE)
    return absolute(named) if named else data_folder() / _CACHE_DEFAULT


def pixel_folder() -> Path | None:
    """Return the folder of images that were decoded and scaled, or None unless ``TOPK_CACHE`` is set.

    They are large, about 260 kB each for a shorter side of 256, so they are kept only if the user asks for it.
    """
    return cache_folder() / "pixels" if os.environ.get(_CACHE_VARIABLE) else None
