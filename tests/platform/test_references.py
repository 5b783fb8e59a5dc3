"""Functions and classes in place of their references, and what no process could import."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest

from topk_platform import Loss, Model, Recipe, Regime, UserError
from topk_platform.references import import_reference


def a_function() -> None: ...


def test_functions_and_classes_stand_for_their_references() -> None:
    name = f"{__name__}:a_function"
    assert Regime("r", a_function) == Regime("r", name)  # type: ignore[arg-type]
    assert Model(a_function) == Model(name) and Model(a_function).label == "a_function"  # type: ignore[arg-type]
    assert Loss(Recipe).name == "topk_platform.specs.recipe:Recipe"  # type: ignore[arg-type]
    assert import_reference(name) is a_function


def inside() -> Callable[[], None]:
    def loss() -> None: ...

    return loss


def of_a_notebook() -> Callable[[], None]:
    def loss() -> None: ...

    loss.__module__, loss.__qualname__ = "__main__", "loss"
    return loss


def shadowed() -> Callable[[], None]:
    def loss() -> None: ...

    loss.__qualname__ = "a_function"
    return loss


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: None, "a lambda has no name"),
        (inside(), "it is inside a function or a class"),
        (
            of_a_notebook(),
            "it is defined in a notebook or in the script that runs, which workers do not import",
        ),
        (shadowed(), f"{__name__}:a_function is something else"),
        (functools.partial(a_function), "a partial has no name of its own"),
    ],
)
def test_what_no_process_can_import_is_refused_with_the_remedy(value: Any, why: str) -> None:
    for make in (Model, Loss, lambda given: Regime("r", given)):
        with pytest.raises(
            UserError, match=re.escape(f": {why}. Define it by `def` or `class` at the top of a file")
        ):
            make(value)
