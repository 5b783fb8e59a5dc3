"""Frozen dataclasses for what a study asks and what came of it; they need only the standard library."""

from topk_platform.specs.arm import Arm, Model, Protocol, grid
from topk_platform.specs.checks import check_name
from topk_platform.specs.claims import Claim, Contrast
from topk_platform.specs.codec import canonical_json, digest
from topk_platform.specs.conditions import active, in_order, reaching
from topk_platform.specs.inputs import Inputs
from topk_platform.specs.loss import Loss
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
from topk_platform.specs.pruner import (
    NoPruning,
    Patient,
    Pruner,
    Quantile,
    SuccessiveHalving,
    rungs_of,
    startup_of,
)
from topk_platform.specs.published import Published
from topk_platform.specs.racing import Racing
from topk_platform.specs.recipe import SEARCHABLE, Augmentation, Numerics, Recipe
from topk_platform.specs.regime import Condition, LabelNoise, LongTail, PerClass, Regime, TrainFraction
from topk_platform.specs.repeats import Repeats
from topk_platform.specs.sampler import GP, NSGAII, QMC, TPE, CmaEs, Grid, OptunaSampler, Random, Sampler
from topk_platform.specs.schedule import SHAPES, Parameter, Schedule
from topk_platform.specs.setting import Setting, numbers
from topk_platform.specs.smoke import STANDINS, images_of, smoke_arm
from topk_platform.specs.space import Choice, Dimension, Float, Int, Scalar
from topk_platform.specs.study import Study
from topk_platform.specs.trial import EpochRecord, Phase, Status, Trial, TrialRecord

__all__ = [
    "GP",
    "GROUPS",
    "NSGAII",
    "QMC",
    "SEARCHABLE",
    "SHAPES",
    "STANDINS",
    "TPE",
    "Arm",
    "Augmentation",
    "Choice",
    "Claim",
    "CmaEs",
    "Condition",
    "Contrast",
    "Dimension",
    "EpochRecord",
    "Float",
    "Grid",
    "Inputs",
    "Int",
    "LabelNoise",
    "LongTail",
    "Loss",
    "Measure",
    "Model",
    "NoPruning",
    "Numerics",
    "OptunaSampler",
    "Parameter",
    "Patient",
    "PerClass",
    "Phase",
    "Protocol",
    "Pruner",
    "Published",
    "Quantile",
    "Racing",
    "Random",
    "Recipe",
    "Regime",
    "Repeats",
    "Sampler",
    "Scalar",
    "Schedule",
    "Setting",
    "Status",
    "Study",
    "SuccessiveHalving",
    "TrainFraction",
    "Trial",
    "TrialRecord",
    "accuracy_names",
    "active",
    "candidate_names",
    "canonical_json",
    "check_name",
    "coverage_names",
    "digest",
    "digits_of",
    "grid",
    "images_of",
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
