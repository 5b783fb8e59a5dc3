"""Datasets and the conditions that make regimes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from topk_platform.data.conditions import apply_conditions, long_tail_counts, noisy_labels
from topk_platform.data.dataset import Dataset, Split
from topk_platform.data.digits import digits
from topk_platform.errors import UserError
from topk_platform.references import check_arguments, look_up
from topk_platform.specs import Regime

__all__ = [
    "DATASETS",
    "Dataset",
    "Split",
    "apply_conditions",
    "digits",
    "load",
    "long_tail_counts",
    "noisy_labels",
]

DATASETS: dict[str, Callable[..., Dataset]] = {"digits": digits}


def load(regime: Regime) -> Dataset:
    """Return the regime's dataset before its conditions; a process reads each once.

    Raises:
        UserError: if there is no such dataset, an option is unknown, its files cannot be read, or its function
            returns something else.
    """
    return _load(regime.dataset, tuple(sorted(regime.options.items())))


@lru_cache(maxsize=4)
def _load(name: str, options: tuple[tuple[str, object], ...]) -> Dataset:
    function = look_up("dataset", name, DATASETS)
    check_arguments("dataset", name, function, dict(options))
    try:
        dataset = function(**dict(options))
    except OSError as error:
        raise UserError(f"dataset {name} cannot be read: {error}") from error
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"dataset {name}: must return a topk_platform.data.Dataset, got {type(dataset).__name__}"
        )
    return dataset
