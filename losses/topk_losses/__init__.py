"""Losses for top-K classification: exact, stable, and usable with nothing but torch."""

from topk_losses import functional
from topk_losses.backends import Choice, backend, explain_backend, use_backend
from topk_losses.heads import CosineHead
from topk_losses.margins import effective_number_weights, uneven_margins
from topk_losses.modules import (
    LDAM,
    BalancedSoftmax,
    CalibratedTopKHinge,
    ConvexTopKHinge,
    CrossEntropy,
    Focal,
    LapSumTopKLoss,
    LogitAdjusted,
    Loss,
    NoisedImbalancedTopKHinge,
    NoisedTopKHinge,
    SmoothTopKHinge,
    SmoothTopKSVM,
    SortingTopKCrossEntropy,
    TopKEntropy,
    TopKGrouping,
    TopKHinge,
    TopKTransition,
    TruncatedTopKEntropy,
)
from topk_losses.warming import warm_up

__all__ = [
    "LDAM",
    "BalancedSoftmax",
    "CalibratedTopKHinge",
    "Choice",
    "ConvexTopKHinge",
    "CosineHead",
    "CrossEntropy",
    "Focal",
    "LapSumTopKLoss",
    "LogitAdjusted",
    "Loss",
    "NoisedImbalancedTopKHinge",
    "NoisedTopKHinge",
    "SmoothTopKHinge",
    "SmoothTopKSVM",
    "SortingTopKCrossEntropy",
    "TopKEntropy",
    "TopKGrouping",
    "TopKHinge",
    "TopKTransition",
    "TruncatedTopKEntropy",
    "backend",
    "effective_number_weights",
    "explain_backend",
    "functional",
    "uneven_margins",
    "use_backend",
    "warm_up",
]
