"""Data whose fingerprint also covers the files that the regime's conditions read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from topk_platform.data.dataset import Dataset
from topk_platform.data.population import Population, Source
from topk_platform.errors import MissingDataError, UserError

__all__ = ["with_files"]


@dataclass(frozen=True)
class _MarkedDataset(Dataset):
    mark: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the data before conditions and of the files."""
        return self.mark


@dataclass(frozen=True)
class _MarkedPopulation(Population):
    mark: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the definition and of the files."""
        return self.mark


def with_files(source: Source, files: Sequence[str], folder: Path) -> Source:
    """Return the same data with a fingerprint that changes with the bytes of some files.

    Therefore results with one confusion matrix never count for another matrix in a file of the same name.

    Args:
        source: The data.
        files: The files' names in the folder.
        folder: The data folder.

    Raises:
        MissingDataError: if a file does not exist.
        UserError: if a file cannot be read.
    """
    state = hashlib.sha256(source.fingerprint.encode())
    for name in files:
        state.update(hashlib.sha256(_bytes(folder / name)).digest())
    given = {one.name: getattr(source, one.name) for one in fields(source)}
    kind = _MarkedPopulation if isinstance(source, Population) else _MarkedDataset
    return kind(**given, mark=state.hexdigest()[:20])


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise MissingDataError(
            f"the file {path}, which a condition reads, does not exist: put it there, or name its folder with "
            "--data DIR or TOPK_DATA"
        ) from error
    except OSError as error:
        raise UserError(f"the file {path}, which a condition reads, cannot be read: {error}") from error
