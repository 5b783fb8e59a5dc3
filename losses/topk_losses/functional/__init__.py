"""Every loss and operator as a function of scores and targets."""

from topk_losses.functional.entropy import (
    balanced_softmax,
    cross_entropy,
    focal,
    ldam,
    logit_adjusted,
    truncated_topk_entropy,
)
from topk_losses.functional.grouping import topk_grouping, topk_transition
from topk_losses.functional.hinge import calibrated_topk_hinge, convex_topk_hinge, topk_hinge
from topk_losses.functional.noised import noised_imbalanced_topk_hinge, noised_topk_hinge
from topk_losses.functional.smooth import smooth_topk_svm
from topk_losses.margins import uneven_margins
from topk_losses.operators import (
    expected_topk,
    inclusion_probabilities,
    log_elementary_symmetric,
    noised_topk,
)

__all__ = [
    "balanced_softmax",
    "calibrated_topk_hinge",
    "convex_topk_hinge",
    "cross_entropy",
    "expected_topk",
    "focal",
    "inclusion_probabilities",
    "ldam",
    "log_elementary_symmetric",
    "logit_adjusted",
    "noised_imbalanced_topk_hinge",
    "noised_topk",
    "noised_topk_hinge",
    "smooth_topk_svm",
    "topk_grouping",
    "topk_hinge",
    "topk_transition",
    "truncated_topk_entropy",
    "uneven_margins",
]
