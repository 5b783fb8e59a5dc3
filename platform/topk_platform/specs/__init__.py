"""Frozen dataclasses for what a study asks and what came of it; they need only the standard library."""

from topk_platform.specs.arms.additions import (
    EMA,
    SWA,
    LogitAdjustment,
    RandAugment,
    RetrainedClassifier,
    TauNormalised,
    TrivialAugment,
)
from topk_platform.specs.arms.arm import Arm, Model, Protocol, grid
from topk_platform.specs.arms.loss import Loss
from topk_platform.specs.arms.noise import ConfusionNoise, InstanceNoise, NoisyLabels, PairFlip
from topk_platform.specs.arms.recipe import SEARCHABLE, Augmentation, Numerics, Recipe
from topk_platform.specs.arms.regime import (
    Condition,
    LabelNoise,
    LongTail,
    Noise,
    PerClass,
    Regime,
    TrainFraction,
)
from topk_platform.specs.arms.schedule import SHAPES, Parameter, Schedule
from topk_platform.specs.arms.setting import Setting, numbers
from topk_platform.specs.checks import check_name
from topk_platform.specs.codec import canonical_json, digest
from topk_platform.specs.inputs import Inputs
from topk_platform.specs.metric_names import (
    GROUPS,
    Measure,
    accuracy_names,
    candidate_names,
    coverage_names,
    digits_of,
    less_is_better,
    measure_of,
    measures_among,
    number_text,
    scale_of,
    unit_of,
)
from topk_platform.specs.search.active import active, in_order, reaching
from topk_platform.specs.search.pruner import (
    NoPruning,
    Patient,
    Pruner,
    Quantile,
    SuccessiveHalving,
    rungs_of,
    startup_of,
)
from topk_platform.specs.search.racing import Racing
from topk_platform.specs.search.repeats import Repeats
from topk_platform.specs.search.sampler import (
    GP,
    NSGAII,
    QMC,
    TPE,
    CmaEs,
    Grid,
    OptunaSampler,
    Random,
    Sampler,
)
from topk_platform.specs.search.space import Choice, Dimension, Float, Int, Scalar
from topk_platform.specs.study.claims import Claim, Contrast
from topk_platform.specs.study.published import Published
from topk_platform.specs.study.smoke import STANDINS, smoke_arm
from topk_platform.specs.study.study import Study
from topk_platform.specs.trial import EpochRecord, Phase, Status, Trial, TrialRecord

__all__ = [
    "EMA",
    "GP",
    "GROUPS",
    "NSGAII",
    "QMC",
    "SEARCHABLE",
    "SHAPES",
    "STANDINS",
    "SWA",
    "TPE",
    "Arm",
    "Augmentation",
    "Choice",
    "Claim",
    "CmaEs",
    "Condition",
    "ConfusionNoise",
    "Contrast",
    "Dimension",
    "EpochRecord",
    "Float",
    "Grid",
    "Inputs",
    "InstanceNoise",
    "Int",
    "LabelNoise",
    "LogitAdjustment",
    "LongTail",
    "Loss",
    "Measure",
    "Model",
    "NoPruning",
    "Noise",
    "NoisyLabels",
    "Numerics",
    "OptunaSampler",
    "PairFlip",
    "Parameter",
    "Patient",
    "PerClass",
    "Phase",
    "Protocol",
    "Pruner",
    "Published",
    "Quantile",
    "Racing",
    "RandAugment",
    "Random",
    "Recipe",
    "Regime",
    "Repeats",
    "RetrainedClassifier",
    "Sampler",
    "Scalar",
    "Schedule",
    "Setting",
    "Status",
    "Study",
    "SuccessiveHalving",
    "TauNormalised",
    "TrainFraction",
    "Trial",
    "TrialRecord",
    "TrivialAugment",
    "accuracy_names",
    "active",
    "candidate_names",
    "canonical_json",
    "check_name",
    "coverage_names",
    "digest",
    "digits_of",
    "grid",
    "in_order",
    "less_is_better",
    "measure_of",
    "measures_among",
    "number_text",
    "numbers",
    "reaching",
    "rungs_of",
    "scale_of",
    "smoke_arm",
    "startup_of",
    "unit_of",
]
