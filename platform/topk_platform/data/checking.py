"""Checks of a dataset's values: finite, and the same in every process that builds it."""

from __future__ import annotations

from torch import Tensor

from topk_platform.data.arrays import check_finite
from topk_platform.data.dataset import Dataset
from topk_platform.data.loading import read
from topk_platform.data.population import Population, Source
from topk_platform.errors import UserError
from topk_platform.references import is_reference
from topk_platform.specs import Regime

__all__ = ["check_source"]


def check_source(regime: Regime, source: Source) -> None:
    """Check that data have two classes and finite inputs, and that a user's function returns the same data twice.

    Effect: a user's function is called a second time, which doubles its time and memory. For a population, one sample
    is drawn twice from the same seed.

    Args:
        regime: The regime.
        source: The regime's dataset before the conditions.

    Raises:
        UserError: if one of the checks fails.
    """
    if source.classes < 2:
        raise UserError(
            f"regime {regime.name}: dataset {regime.dataset} must have at least two classes, got {source.classes}"
        )
    _check_finite(regime.dataset, _example(source))
    if is_reference(regime.dataset):
        _check_repeats(regime, source)


def _example(source: Source) -> Dataset:
    return source.example if isinstance(source, Population) else source


def _check_finite(name: str, dataset: Dataset) -> None:
    if 0 in dataset.shape:
        raise UserError(f"dataset {name}: inputs must hold numbers, got samples of shape {dataset.shape}")
    for split, part in dataset.splits.items():
        if isinstance(part.inputs, Tensor):
            check_finite(f"dataset {name}: inputs", part.inputs, f"of the {split} split")


def _check_repeats(regime: Regime, source: Source) -> None:
    if _example(read(regime)).fingerprint == _example(source).fingerprint:
        return
    if isinstance(source, Population):
        raise UserError(
            f"dataset {regime.dataset} must return the same data for the same generator, but a second call returned "
            "others: draw all random numbers from its parameter generator"
        )
    raise UserError(
        f"dataset {regime.dataset} must return the same data in every process, but a second call returned others: draw "
        "all random numbers from torch.Generator().manual_seed(0) or numpy.random.default_rng(0), or, for other data "
        "with every seed of the study, from a parameter generator"
    )
