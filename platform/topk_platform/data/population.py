"""Data that every seed draws for itself, and data whose fingerprint covers the files that conditions read."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Generator, Tensor

from topk_platform.data.dataset import Dataset
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs import Scalar

__all__ = ["Population", "Source", "with_files"]


@dataclass(frozen=True)
class Population:
    """A dataset function with a parameter ``generator``: every seed draws its own sample.

    Args:
        name: The function's name in the platform's table, or its reference ``package.module:attribute``.
        function: The function. It is called with ``generator`` and the options and returns a :class:`Dataset`.
        options: The function's other arguments.

    Example:
        >>> from topk_platform.data import ring
        >>> rings = Population("ring", ring, {"sigma": 20.0})
        >>> rings.classes, rings.shape, rings.class_counts.tolist()
        (6, (2,), [300, 300, 300, 300, 300, 300])
        >>> one, other = (rings.sample(torch.Generator().manual_seed(seed)) for seed in (1, 2))
        >>> one.fingerprint == other.fingerprint
        False
    """

    name: str
    function: Callable[..., Dataset]
    options: Mapping[str, Scalar] = field(default_factory=dict)

    def sample(self, generator: Generator) -> Dataset:
        """Return the dataset that ``generator`` draws."""
        return self.function(generator=generator, **self.options)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the definition: name and options.

        It is not a hash of a sample, because sines and logarithms may differ between machines in their last bits. What
        the function draws is covered by its version, or by the code of the user's that it reaches.
        """
        text = repr(("population", self.name, sorted(self.options.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @cached_property
    def example(self) -> Dataset:
        """One fixed sample, from which shapes, classes and counts are read; no trial trains on it."""
        return self.sample(torch.Generator().manual_seed(0))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.example.classes

    @property
    def superclasses(self) -> tuple[int, ...] | None:
        """The superclass of each class; None if there are no superclasses."""
        return self.example.superclasses

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.example.shape

    @property
    def class_counts(self) -> Tensor:
        """Training samples of each class in the example, int64 ``(classes,)``."""
        return self.example.class_counts


Source = Dataset | Population
"""A regime's dataset before the conditions: the same for every seed, or drawn for each seed."""


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
    marked = copy.copy(source)
    object.__setattr__(marked, "fingerprint", state.hexdigest()[:20])  # in place of the one that is computed
    return marked


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
