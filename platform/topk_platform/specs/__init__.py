# ruff: noqa: F403 - what the catalogues of conditions, samplers and pruners export
"""Frozen dataclasses for a study's question and its records; they need only the standard library."""

from topk_platform.specs import regime_conditions, search_rules
from topk_platform.specs.arm import Arm, Model, Regime, grid
from topk_platform.specs.claims import Claim, Contrast, Published
from topk_platform.specs.codec import canonical_json, digest
from topk_platform.specs.loss import Loss, Parameter, Schedule, Setting, numbers
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
from topk_platform.specs.recipe import EMA, SEARCHABLE, Augmentation, Numerics, Recipe
from topk_platform.specs.regime_conditions import *
from topk_platform.specs.regime_conditions import CONDITIONS, Condition, Noise, strength
from topk_platform.specs.search_rules import *
from topk_platform.specs.search_rules import Pruner, Sampler
from topk_platform.specs.searches import Protocol, Repeats
from topk_platform.specs.smoke import FEATURES, STANDINS, images_of, smoke_arm
from topk_platform.specs.space import Choice, Dimension, Float, Int, Scalar, active, in_order, reaching
from topk_platform.specs.study import Study
from topk_platform.specs.trial import EpochRecord, Inputs, Phase, Status, Trial, TrialRecord

__all__ = [
    "CONDITIONS",
    "EMA",
    "FEATURES",
    "GROUPS",
    "SEARCHABLE",
    "STANDINS",
    "Arm",
    "Augmentation",
    "Choice",
    "Claim",
    "Condition",
    "Contrast",
    "Dimension",
    "EpochRecord",
    "Float",
    "Inputs",
    "Int",
    "Loss",
    "Measure",
    "Model",
    "Noise",
    "Numerics",
    "Parameter",
    "Phase",
    "Protocol",
    "Pruner",
    "Published",
    "Recipe",
    "Regime",
    "Repeats",
    "Sampler",
    "Scalar",
    "Schedule",
    "Setting",
    "Status",
    "Study",
    "Trial",
    "TrialRecord",
    "accuracy_names",
    "active",
    "candidate_names",
    "canonical_json",
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
    "scale_of",
    "smoke_arm",
    "strength",
    "unit_of",
]
__all__ += regime_conditions.__all__
__all__ += search_rules.__all__
