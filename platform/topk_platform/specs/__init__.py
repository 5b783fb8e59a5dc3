# ruff: noqa: F403 - what the catalogues of conditions, samplers and pruners export
"""Frozen dataclasses for a study's question and its records; they need only the standard library."""

from topk_platform.specs.arms import conditions
from topk_platform.specs.arms.arm import Arm, Model, Protocol, grid
from topk_platform.specs.arms.conditions import *
from topk_platform.specs.arms.conditions import CONDITIONS, Condition, Noise, strength
from topk_platform.specs.arms.loss import Loss
from topk_platform.specs.arms.recipe import EMA, SEARCHABLE, Augmentation, Numerics, Recipe
from topk_platform.specs.arms.regime import Regime
from topk_platform.specs.arms.schedule import Parameter, Schedule
from topk_platform.specs.arms.setting import Setting, numbers
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
from topk_platform.specs.search import pruner, sampler
from topk_platform.specs.search.active import active, in_order, reaching
from topk_platform.specs.search.pruner import *
from topk_platform.specs.search.pruner import Pruner
from topk_platform.specs.search.repeats import Repeats
from topk_platform.specs.search.sampler import *
from topk_platform.specs.search.sampler import Sampler
from topk_platform.specs.search.space import Choice, Dimension, Float, Int, Scalar
from topk_platform.specs.study.claims import Claim, Contrast
from topk_platform.specs.study.published import Published
from topk_platform.specs.study.smoke import FEATURES, STANDINS, images_of, smoke_arm
from topk_platform.specs.study.study import Study
from topk_platform.specs.trial import EpochRecord, Phase, Status, Trial, TrialRecord

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
__all__ += conditions.__all__
__all__ += pruner.__all__
__all__ += sampler.__all__
