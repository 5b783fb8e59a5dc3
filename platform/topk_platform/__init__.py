# ruff: noqa: F403 - what the catalogues of conditions, samplers and pruners export
"""The study platform: data, models, training, search on Ray, records and reports.

Example:
    >>> from topk_platform import Arm, Loss, Model, Recipe, Regime, Study
    >>> arm = Arm(Regime("balanced", "digits"), Model("mlp"), Loss("cross_entropy"), k=3, recipe=Recipe(epochs=5))
    >>> Study("mine", [arm], topk=(1, 3)).arms[0].name
    'balanced/mlp/cross_entropy'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.references import first_use
from topk_platform.specs import (
    EMA,
    Arm,
    Augmentation,
    Choice,
    Claim,
    Contrast,
    Float,
    Int,
    Loss,
    Model,
    Numerics,
    Protocol,
    Published,
    Recipe,
    Regime,
    Schedule,
    Study,
    grid,
    regime_conditions,
    search_rules,
)
from topk_platform.specs.regime_conditions import *
from topk_platform.specs.search_rules import *

if TYPE_CHECKING:
    from topk_platform.reports.page import report
    from topk_platform.reports.plots import plot
    from topk_platform.reports.study_table import table
    from topk_platform.results.decisions import decide
    from topk_platform.running.loop import run
    from topk_platform.running.plan import plan
    from topk_platform.running.run_options import RunOptions
    from topk_platform.serving import export_model, load_model
    from topk_platform.serving.replaying import replay

__all__ = [
    "EMA",
    "Arm",
    "Augmentation",
    "Choice",
    "Claim",
    "Contrast",
    "Float",
    "Int",
    "Loss",
    "Model",
    "Numerics",
    "Protocol",
    "Published",
    "Recipe",
    "Regime",
    "RunOptions",
    "Schedule",
    "Study",
    "UserError",
    "decide",
    "export_model",
    "grid",
    "load_model",
    "plan",
    "plot",
    "replay",
    "report",
    "run",
    "table",
]
__all__ += regime_conditions.__all__
__all__ += search_rules.__all__

# These names import pyarrow and other large packages, which defining a study does not need.
if not TYPE_CHECKING:  # a type checker would take any name for one of this package's
    __getattr__ = first_use(__name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # names that are imported on first use are listed too
