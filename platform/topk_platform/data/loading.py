"""Datasets by name, read once in a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from topk_platform.data.dataset import Dataset
from topk_platform.data.digits import digits
from topk_platform.errors import UserError
from topk_platform.references import check_arguments, look_up
from topk_platform.specs import Regime

__all__ = ["DATASETS", "load", "read"]

DATASETS: dict[str, Callable[..., Dataset]] = {"digits": digits}


def load(regime: Regime) -> Dataset:
    """Return the regime's dataset before its conditions; a process reads each once.

    Raises:
        UserError: as :func:`read`.
    """
    return _load(regime.dataset, tuple(sorted(regime.options.items())))


@lru_cache(maxsize=4)
def _load(name: str, options: tuple[tuple[str, bool | int | float | str | None], ...]) -> Dataset:
    return read(Regime("dataset", name, options=dict(options)))


def read(regime: Regime) -> Dataset:
    """Return the regime's dataset before its conditions, read anew.

    Raises:
        UserError: if there is no such dataset, an option is unknown, its files cannot be read, or its function
            returns something else.
    """
    name, options = regime.dataset, dict(regime.options)
    function = look_up("dataset", name, DATASETS)
    check_arguments("dataset", name, function, options)
    try:
        dataset = function(**options)
    except OSError as error:
        raise UserError(f"dataset {name} cannot be read: {error}") from error
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"dataset {name}: must return a topk_platform.data.Dataset, got {type(dataset).__name__}"
        )
    return dataset
