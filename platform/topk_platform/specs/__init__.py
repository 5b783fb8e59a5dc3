"""Frozen dataclasses: what is asked and what came of it, from the standard library alone."""

from topk_platform.specs.arm import Arm, Loss, Model, Protocol, Pruning, grid
from topk_platform.specs.checks import check_name
from topk_platform.specs.codec import canonical_json, digest
from topk_platform.specs.metrics import GROUPS, accuracy_names, candidate_names
from topk_platform.specs.published import Published
from topk_platform.specs.recipe import Augmentation, Numerics, Recipe
from topk_platform.specs.regime import Condition, LabelNoise, LongTail, PerClass, Regime, TrainFraction
from topk_platform.specs.smoke import STANDINS, smoke_arm
from topk_platform.specs.space import Choice, Dimension, Float, Int, Scalar
from topk_platform.specs.study import Study
from topk_platform.specs.trial import EpochRecord, Phase, Status, Trial, TrialRecord

__all__ = [
    "GROUPS",
    "STANDINS",
    "Arm",
    "Augmentation",
    "Choice",
    "Condition",
    "Dimension",
    "EpochRecord",
    "Float",
    "Int",
    "LabelNoise",
    "LongTail",
    "Loss",
    "Model",
    "Numerics",
    "PerClass",
    "Phase",
    "Protocol",
    "Pruning",
    "Published",
    "Recipe",
    "Regime",
    "Scalar",
    "Status",
    "Study",
    "TrainFraction",
    "Trial",
    "TrialRecord",
    "accuracy_names",
    "candidate_names",
    "canonical_json",
    "check_name",
    "digest",
    "grid",
    "smoke_arm",
]
