"""An arm's settings as a flat mapping, by which MLflow lets people compare runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from topk_platform.specs.arms.arm import Arm
from topk_platform.specs.arms.recipe import Recipe
from topk_platform.specs.search.space import Scalar

__all__ = ["described"]

_ALWAYS = ("batch_size", "epochs", "learning_rate", "optimizer", "schedule", "weight_decay")


def described(arm: Arm) -> dict[str, Scalar]:
    """Return the settings that all trials of an arm have in common, sorted by name.

    These are: regime, model, loss with its fixed parameters, head and k; the most important fields of the recipe;
    and all other fields of the recipe that differ from the defaults. Fields of nested specs are named ``OUTER.INNER``.

    Args:
        arm: The arm.

    Example:
        >>> from topk_platform import Loss, Model, Recipe, Regime
        >>> loss = Loss("smooth_topk_svm", fixed={"tau": 0.1})
        >>> shown = described(Arm(Regime("clean", "digits"), Model("mlp"), loss, 3, Recipe(30, momentum=0.0)))
        >>> shown["loss"], shown["tau"], shown["k"], shown["epochs"], shown["momentum"]
        ('smooth_topk_svm', 0.1, 3, 30, 0.0)
    """
    recipe = arm.recipe
    shown: dict[str, object] = dict(_changed(recipe, Recipe(recipe.epochs)))
    shown |= {name: getattr(recipe, name) for name in _ALWAYS}
    shown |= {
        "regime": arm.regime.name,
        "model": arm.model.label,
        "loss": arm.loss.label,
        "head": arm.loss.head,
    }
    shown |= {"k": arm.k, **{name: value for name, value in arm.loss.fixed.items() if value is not None}}
    plain = (bool, int, float, str)
    return {name: value if isinstance(value, plain) else str(value) for name, value in sorted(shown.items())}


def _changed(spec: object, default: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(spec):  # type: ignore[arg-type]
        value, usual = getattr(spec, field.name), getattr(default, field.name)
        if dataclasses.is_dataclass(usual):
            yield from _changed(value, usual, f"{prefix}{field.name}.")
        elif value != usual:
            yield f"{prefix}{field.name}", value
