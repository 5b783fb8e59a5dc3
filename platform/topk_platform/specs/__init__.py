"""Frozen dataclasses that say what is asked and what came of it; they import nothing but the standard library."""

from topk_platform.specs.codec import canonical_json, digest
from topk_platform.specs.space import Choice, Dimension, Float, Int, Scalar
from topk_platform.specs.study import (
    Arm,
    Condition,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    Protocol,
    Pruning,
    Recipe,
    Regime,
    Study,
    check_name,
    grid,
)
from topk_platform.specs.trial import EpochRecord, Phase, Status, Trial, TrialRecord

__all__ = [
    "Arm",
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
    "Phase",
    "Protocol",
    "Pruning",
    "Recipe",
    "Regime",
    "Scalar",
    "Status",
    "Study",
    "Trial",
    "TrialRecord",
    "canonical_json",
    "check_name",
    "digest",
    "grid",
]
