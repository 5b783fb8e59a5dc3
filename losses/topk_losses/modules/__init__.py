"""Every loss as a module; the constructor takes the parameters of the function."""

from topk_losses.modules._base import Loss
from topk_losses.modules.autkc import AUTKC
from topk_losses.modules.entropy import (
    LDAM,
    BalancedSoftmax,
    CrossEntropy,
    Focal,
    LogitAdjusted,
    TruncatedTopKEntropy,
    VectorScaling,
)
from topk_losses.modules.generalized import GeneralizedCrossEntropy
from topk_losses.modules.grouping import TopKGrouping, TopKTransition
from topk_losses.modules.hinge import CalibratedTopKHinge, ConvexTopKHinge, TopKHinge
from topk_losses.modules.lapsum import LapSumTopKLoss
from topk_losses.modules.noised import NoisedImbalancedTopKHinge, NoisedTopKHinge
from topk_losses.modules.robust import (
    ActivePassiveLoss,
    AsymmetricLoss,
    LabelSmoothing,
    LogitClip,
    MeanAbsoluteError,
    SymmetricCrossEntropy,
)
from topk_losses.modules.smooth import SmoothTopKSVM
from topk_losses.modules.smooth_hinge import SmoothTopKHinge
from topk_losses.modules.soft_topk import SoftTopKLoss
from topk_losses.modules.sorting import SortingTopKCrossEntropy
from topk_losses.modules.topk_entropy import TopKEntropy

__all__ = [
    "AUTKC",
    "LDAM",
    "ActivePassiveLoss",
    "AsymmetricLoss",
    "BalancedSoftmax",
    "CalibratedTopKHinge",
    "ConvexTopKHinge",
    "CrossEntropy",
    "Focal",
    "GeneralizedCrossEntropy",
    "LabelSmoothing",
    "LapSumTopKLoss",
    "LogitAdjusted",
    "LogitClip",
    "Loss",
    "MeanAbsoluteError",
    "NoisedImbalancedTopKHinge",
    "NoisedTopKHinge",
    "SmoothTopKHinge",
    "SmoothTopKSVM",
    "SoftTopKLoss",
    "SortingTopKCrossEntropy",
    "SymmetricCrossEntropy",
    "TopKEntropy",
    "TopKGrouping",
    "TopKHinge",
    "TopKTransition",
    "TruncatedTopKEntropy",
    "VectorScaling",
]
