"""Every loss and operator as a function of scores and targets.

What all losses have in common:

- ``scores`` are ``(N, L)``, ``(N, L, ...)`` or a single row ``(L,)``, ``target`` labels ``(N, ...)`` of any whole
  dtype; ``reduction``, ``weight`` and ``ignore_index`` are those of torch's cross-entropy. A weighted mean divides by
  the sum of the labels' weights.
- Probabilities of the scores' shape as ``target`` (Mixup, CutMix, label smoothing) give the expected loss of a
  label drawn from them, ``Σ_c t_c·loss(s, c)``; the smooth top-K SVM alone takes labels only. Weights multiply the
  terms of that sum, and the mean divides by the number of samples, as in torch.
- A score of -inf masks a class: the rest of the row behaves as if it were not there, and it gets no gradient. A
  target that is masked costs +inf; fewer than K other classes cost a top-K loss nothing.
- NaN in a row, and +inf as an overflow of half precision leaves it, make that row's loss NaN, and its gradient, so
  that a gradient scaler sees it; other rows are as without it.
- float64 is computed in float64, everything narrower in float32, under autocast too; the loss has that dtype and
  the gradient the scores'.
- Nothing waits for a device. The values of tensors (labels in range, counts above 0) are checked in eager mode on
  the CPU, and by the modules' constructors; shapes and dtypes are checked always. Every complaint is a
  ``ValueError``.
"""

from topk_losses.functional.autkc import autkc
from topk_losses.functional.entropy import (
    balanced_softmax,
    cross_entropy,
    focal,
    ldam,
    logit_adjusted,
    truncated_topk_entropy,
)
from topk_losses.functional.generalized import generalized_cross_entropy
from topk_losses.functional.grouping import topk_grouping, topk_transition
from topk_losses.functional.hinge import calibrated_topk_hinge, convex_topk_hinge, topk_hinge
from topk_losses.functional.lapsum import lapsum_topk_loss
from topk_losses.functional.noised import noised_imbalanced_topk_hinge, noised_topk_hinge
from topk_losses.functional.reduction import reduce_rows
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
    "autkc",
    "balanced_softmax",
    "calibrated_topk_hinge",
    "convex_topk_hinge",
    "cross_entropy",
    "expected_topk",
    "focal",
    "generalized_cross_entropy",
    "inclusion_probabilities",
    "lapsum_topk",
    "lapsum_topk_loss",
    "ldam",
    "log_elementary_symmetric",
    "logit_adjusted",
    "noised_imbalanced_topk_hinge",
    "noised_topk",
    "noised_topk_hinge",
    "reduce_rows",
    "smooth_topk_hinge",
    "smooth_topk_svm",
    "soft_topk",
    "soft_topk_loss",
    "sorting_topk_cross_entropy",
    "topk_entropy",
    "topk_grouping",
    "topk_hinge",
    "topk_transition",
    "truncated_topk_entropy",
    "uneven_margins",
]
