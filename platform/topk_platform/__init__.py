"""The study platform: data, models, training, search on Ray, records and reports.

Example:
    >>> from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
    >>> arm = Arm(Regime("balanced", "digits"), Model("mlp"), Loss("cross_entropy"), k=3, recipe=Recipe(epochs=5))
    >>> Study("mine", [arm], topk=(1, 3)).arms[0].name
    'balanced/mlp/cross_entropy'
"""

from __future__ import annotations

import importlib
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
    from topk_platform.reports.reading import table
    from topk_platform.running.planning import plan
    from topk_platform.running.replaying import replay
    from topk_platform.running.study import run

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

_PLACES = {
    "plan": "running.planning",
    "replay": "running.replaying",
    "run": "running.study",
    "table": "reports.reading",
}


def __getattr__(name: str) -> Any:
    # These import pyarrow and more; defining a study should not.
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
