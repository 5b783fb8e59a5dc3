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
from topk_platform.lazy import first_use
from topk_platform.specs import (
    EMA,
    GP,
    NSGAII,
    QMC,
    SWA,
    TPE,
    Arm,
    Augmentation,
    Choice,
    Claim,
    CmaEs,
    ConfusionNoise,
    Contrast,
    Float,
    Grid,
    InstanceNoise,
    Int,
    LabelNoise,
    LogitAdjustment,
    LongTail,
    Loss,
    Model,
    NoisyLabels,
    NoPruning,
    Numerics,
    OptunaSampler,
    PairFlip,
    Patient,
    PerClass,
    Protocol,
    Published,
    Quantile,
    Racing,
    RandAugment,
    Random,
    Recipe,
    Regime,
    RetrainedClassifier,
    Schedule,
    Study,
    SuccessiveHalving,
    TauNormalised,
    TrainFraction,
    TrivialAugment,
    grid,
)

if TYPE_CHECKING:
    from topk_platform.evidence import bundle, verify
    from topk_platform.evidence.recommending import recommend
    from topk_platform.evidence.replaying import replay
    from topk_platform.reports.checklist import checklist
    from topk_platform.reports.page import report
    from topk_platform.reports.plots import plot
    from topk_platform.results.decisions import decide
    from topk_platform.results.from_store import table
    from topk_platform.results.tuning import tuning
    from topk_platform.running.driver.study import run
    from topk_platform.running.estimate.planning import plan
    from topk_platform.serving import export_model, load_model

__all__ = [
    "EMA",
    "GP",
    "NSGAII",
    "QMC",
    "SWA",
    "TPE",
    "Arm",
    "Augmentation",
    "Choice",
    "Claim",
    "CmaEs",
    "ConfusionNoise",
    "Contrast",
    "Float",
    "Grid",
    "InstanceNoise",
    "Int",
    "LabelNoise",
    "LogitAdjustment",
    "LongTail",
    "Loss",
    "Model",
    "NoPruning",
    "NoisyLabels",
    "Numerics",
    "OptunaSampler",
    "PairFlip",
    "Patient",
    "PerClass",
    "Protocol",
    "Published",
    "Quantile",
    "Racing",
    "RandAugment",
    "Random",
    "Recipe",
    "Regime",
    "RetrainedClassifier",
    "Schedule",
    "Study",
    "SuccessiveHalving",
    "TauNormalised",
    "TrainFraction",
    "TrivialAugment",
    "UserError",
    "bundle",
    "checklist",
    "decide",
    "export_model",
    "grid",
    "load_model",
    "plan",
    "plot",
    "recommend",
    "replay",
    "report",
    "run",
    "table",
    "tuning",
    "verify",
]

# These import pyarrow and more; defining a study should not.
if not TYPE_CHECKING:  # a type checker would take any name for one of this package's
    __getattr__ = first_use(__name__)
