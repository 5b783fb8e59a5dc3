"""The study platform: data, models, training, search on Ray, records and reports.

Example:
    >>> from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
    >>> arm = Arm(Regime("balanced", "digits"), Model("mlp"), Loss("cross_entropy"), k=3, recipe=Recipe(epochs=5))
    >>> Study("mine", [arm], topk=(1, 3)).arms[0].name
    'balanced/mlp/cross_entropy'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError
from topk_platform.specs import (
    Arm,
    Augmentation,
    Choice,
    Float,
    Int,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    Numerics,
    PerClass,
    Protocol,
    Pruning,
    Published,
    Recipe,
    Regime,
    Study,
    TrainFraction,
    grid,
)

if TYPE_CHECKING:
    from topk_platform.running import plan, replay, run, table

__all__ = [
    "Arm",
    "Augmentation",
    "Choice",
    "Float",
    "Int",
    "LabelNoise",
    "LongTail",
    "Loss",
    "Model",
    "Numerics",
    "PerClass",
    "Protocol",
    "Pruning",
    "Published",
    "Recipe",
    "Regime",
    "Study",
    "TrainFraction",
    "UserError",
    "grid",
    "plan",
    "replay",
    "run",
    "table",
]


def __getattr__(name: str) -> Any:
    # What runs studies imports torch and optuna; defining one should not.
    if name in ("plan", "replay", "run", "table"):
        from topk_platform import running  # noqa: PLC0415

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
