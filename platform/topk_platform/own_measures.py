"""Measures of the user's own: functions of a confirmation's ranks, or of its scores, labels and network.

A function with the parameter ``ranks`` is called when results are read, because ranks of all test images are kept. A
function with any of ``scores``, ``labels`` and ``network`` is called when a confirmation has been tested, and its
record keeps what it returns, with the version of its code.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from topk_platform.errors import UserError, as_user_error, reason
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Scalar
from topk_platform.versions import code_of

if TYPE_CHECKING:
    from topk_platform.records.per_image import Ranks
    from topk_platform.records.rows import Row

__all__ = ["Measured", "evaluate", "from_ranks", "of_ranks", "of_scores", "recorded", "recorded_values"]

_TESTED = ("scores", "labels", "network")


@cache
def _function(reference: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Return a measure's function and the names of its parameters.

    Raises:
        UserError: if it cannot be imported, is no function, or has other parameters.
    """
    function = import_reference(reference)
    names = tuple(inspect.signature(function).parameters) if callable(function) else ()
    if names != ("ranks",) and not (names and set(names) <= set(_TESTED)):
        raise UserError(
            f"measure {reference} must be a function of ranks, or of some of {', '.join(_TESTED)}, got the parameters "
            f"{list(names)}"
        )
    return function, names


def from_ranks(reference: str) -> bool:
    """Return whether a measure follows from the ranks of the test images, which are kept.

    Raises:
        UserError: if it is not a function with the parameters of a measure.
    """
    return _function(reference)[1] == ("ranks",)


def of_scores(metrics: Iterable[str]) -> dict[str, str]:
    """Return the measures among metrics that are evaluated when a confirmation is tested, with their code's version.

    Raises:
        UserError: if one is not a function with the parameters of a measure.
    """
    return {name: code_of(name) for name in metrics if is_reference(name) and not from_ranks(name)}


def of_ranks(reference: str, ranks: Ranks) -> npt.NDArray[np.float64]:
    """Return a measure of ranks: a value for each test image, ``(N,)``, or a single number, ``()``.

    Raises:
        UserError: if the function fails, or returns something else than a number or one for each image.
    """
    with as_user_error(f"measure {reference}"):
        values = np.asarray(_function(reference)[0](ranks), np.float64)
    if values.shape not in ((), ranks.label.shape):
        raise UserError(
            f"measure {reference} must return a number, or one for each of {len(ranks.label)} test images, got an "
            f"array of shape {values.shape}"
        )
    return values


def evaluate(reference: str, tested: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the scalars that a measure returns; a number, or the mean of an array, has the function's own name.

    Args:
        reference: The measure.
        tested: The scores ``(N, L)`` and the labels ``(N,)`` of the test split, and the network.

    Raises:
        ValueError: if it returns something else than scalars, or a number that is not finite.
    """
    function, names = _function(reference)
    result = function(**{name: tested[name] for name in names})
    if not isinstance(result, Mapping):
        result = {reference.partition(":")[2]: np.asarray(result, np.float64).mean()}
    return {str(name): _scalar(name, value) for name, value in result.items()}


def _scalar(name: object, value: Any) -> Scalar:
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, bool | int | float | str) or (
        isinstance(plain, float) and not np.isfinite(plain)
    ):
        raise ValueError(f"{name} must be a finite number or a text, got {value!r}")
    return plain


def recorded(codes: Mapping[str, str], tested: Mapping[str, Any]) -> str:
    """Return as JSON what measures give for a tested network, or the error that they raise; empty without measures.

    Args:
        codes: The version of each measure's code.
        tested: As for :func:`evaluate`.
    """
    result: dict[str, dict[str, Any]] = {}
    for reference, code in codes.items():
        result[reference] = {"code": code}
        try:
            result[reference]["values"] = evaluate(reference, tested)
        except Exception as error:  # noqa: BLE001 - whatever a user's code raises; the trained network stands
            result[reference]["why"] = f"{type(error).__name__}: {reason(error)}"
    return json.dumps(result) if result else ""


def recorded_values(text: str | None) -> dict[str, Scalar]:
    """Return all scalars in a text of :func:`recorded`, by name."""
    held = json.loads(text or "{}").values()
    return {name: value for measure in held for name, value in measure.get("values", {}).items()}


class Measured(Mapping[str, Any]):
    """A confirmation's row with the test metrics that its record lacks: from its ranks, and the user's own.

    A measure is None if its function, with the code of now, was not evaluated when the confirmation was tested.

    Args:
        row: The row.
        metrics: The metrics, each with the version of its code if it is a measure of scores, else with None.
        ranks: The ranks by key.
    """

    def __init__(self, row: Row, metrics: Mapping[str, str | None], ranks: Mapping[str, Ranks]) -> None:
        self._row, self._ranks = row, ranks
        self._metrics = {f"test.{metric}": code for metric, code in metrics.items()}
        self._known: dict[str, float | None] = {}

    def __getitem__(self, name: str) -> Any:
        value = self._row.get(name)
        if value is not None or name not in self._metrics:
            return self._row[name]
        if name not in self._known:
            self._known[name] = self._measured(name.removeprefix("test."), self._metrics[name])
        return self._known[name]

    def _measured(self, metric: str, code: str | None) -> float | None:
        if code is not None:
            held = json.loads(self._row.get("own") or "{}").get(metric, {})
            values = held.get("values", {}) if held.get("code") == code else {}
            return cast("float | None", values.get(metric.partition(":")[2]))
        ranks = self._ranks.get(self._row["key"])
        if ranks is None:
            return None
        return float(of_ranks(metric, ranks).mean()) if is_reference(metric) else ranks.accuracy(metric)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._row, *self._metrics)))

    def __len__(self) -> int:
        return sum(1 for _ in self)
