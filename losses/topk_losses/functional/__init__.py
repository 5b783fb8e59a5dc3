"""Every loss and operator as a function of scores and targets.

All losses have this in common:

- ``scores`` have the shape ``(N, L)``, ``(N, L, ...)`` or, for a single row, ``(L,)``. ``target`` holds labels
  ``(N, ...)`` of any integer dtype. ``reduction``, ``weight`` and ``ignore_index`` mean the same as in torch's
  cross-entropy. A weighted mean divides by the sum of the labels' weights.
- ``target`` may instead hold probabilities t of the scores' shape (Mixup, CutMix, label smoothing). The loss is then
  the expectation over a label drawn from them, ``Σ_c t_c·loss(s, c)``. Weights multiply the terms of that sum, and
  the mean divides by the number of samples, as in torch. Only the smooth top-K SVM does not take probabilities.
- A score of -inf masks a class: the loss is that of a row without this class, and the class gets no gradient. A
  masked target costs +inf. Where fewer than K other classes are left, a top-K loss is 0.
- A row that contains NaN or +inf (half precision overflows to +inf) has a loss and a gradient of NaN, so that a
  gradient scaler notices it. Other rows are not affected.
- float64 scores are computed in float64, all others in float32, under autocast too. The loss has the dtype of the
  computation, the gradient that of the scores.
- No call waits for a device. Shapes and dtypes are always checked. Values (labels in range, counts above 0) are
  checked in eager mode on the CPU and by the modules' constructors. Every rejected argument raises ``ValueError``.
"""

from topk_losses.functional.autkc import autkc
from topk_losses.functional.entropy import (
    balanced_softmax,
    cross_entropy,
    focal,
    ldam,
    logit_adjusted,
    truncated_topk_entropy,
    vector_scaling,
)
from topk_losses.functional.generalized import generalized_cross_entropy
from topk_losses.functional.grouping import topk_grouping, topk_transition
from topk_losses.functional.hinge import calibrated_topk_hinge, convex_topk_hinge, topk_hinge
from topk_losses.functional.lapsum import lapsum_topk_loss
from topk_losses.functional.noised import noised_imbalanced_topk_hinge, noised_topk_hinge
from topk_losses.functional.reduction import reduce_rows
from topk_losses.functional.robust import (
    active_passive_loss,
    asymmetric_loss,
    label_smoothing,
    logit_clip,
    mean_absolute_error,
    symmetric_cross_entropy,
)
from topk_losses.functional.smooth import smooth_topk_svm
from topk_losses.functional.smooth_hinge import smooth_topk_hinge
from topk_losses.functional.soft_topk import soft_topk_loss
from topk_losses.functional.sorting import sorting_topk_cross_entropy
from topk_losses.functional.topk_entropy import topk_entropy
from topk_losses.margins import uneven_margins
from topk_losses.operators import (
    expected_topk,
    inclusion_probabilities,
    lapsum_topk,
    log_elementary_symmetric,
    noised_topk,
    soft_topk,
)

__all__ = [
    "active_passive_loss",
    "asymmetric_loss",
    "autkc",
    "balanced_softmax",
    "calibrated_topk_hinge",
    "convex_topk_hinge",
    "cross_entropy",
    "expected_topk",
    "focal",
    "generalized_cross_entropy",
    "inclusion_probabilities",
    "label_smoothing",
    "lapsum_topk",
    "lapsum_topk_loss",
    "ldam",
    "log_elementary_symmetric",
    "logit_adjusted",
    "logit_clip",
    "mean_absolute_error",
    "noised_imbalanced_topk_hinge",
    "noised_topk",
    "noised_topk_hinge",
    "reduce_rows",
    "smooth_topk_hinge",
    "smooth_topk_svm",
    "soft_topk",
    "soft_topk_loss",
    "sorting_topk_cross_entropy",
    "symmetric_cross_entropy",
    "topk_entropy",
    "topk_grouping",
    "topk_hinge",
    "topk_transition",
    "truncated_topk_entropy",
    "uneven_margins",
    "vector_scaling",
]
