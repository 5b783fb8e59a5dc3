# ruff: noqa: F403, PLE0605 - what the families export
"""Every loss and operator as a function of scores and targets.

All losses of samples have this in common; conformal training is a loss of whole batches and has a page of its own:

- ``scores`` have the shape ``(N, L)``, ``(N, L, ...)`` or, for a single row, ``(L,)``. ``target`` holds labels
  ``(N, ...)`` of any integer dtype. ``reduction``, ``weight`` and ``ignore_index`` mean the same as in torch's
  cross-entropy. A weighted mean divides by the sum of the labels' weights.
- ``target`` may instead hold probabilities t of the scores' shape (Mixup, CutMix, label smoothing). The loss is then
  the expectation over a label drawn from them, ``Σ_c t_c·loss(s, c)``. Weights multiply the terms of that sum, and
  the mean divides by the number of samples, as in torch. The smooth top-K SVM, early-learning
  regularisation and conformal training take no probabilities.
- A score of -inf masks a class: the loss is that of a row without this class, and the class gets no gradient. A
  masked target costs +inf. Where fewer than K other classes are left, a top-K loss is 0. An ignored sample may have
  no class left; on the CPU in eager mode its gradient is 0, elsewhere it may be NaN, as in torch.
- A row that contains NaN or +inf (half precision overflows to +inf) has a loss and a gradient of NaN, so that a
  gradient scaler notices it. Other rows are not affected.
- float64 scores are computed in float64, all others in float32, under autocast too. The loss has the dtype of the
  computation, the gradient that of the scores.
- No call waits for a device. Shapes and dtypes are always checked. Values (labels in range, counts above 0) are
  checked in eager mode on the CPU and by the modules' constructors. Every rejected argument raises ``ValueError``.
"""

import inspect

from topk_losses.functional.autkc import *
from topk_losses.functional.conformal import *
from topk_losses.functional.entropy import *
from topk_losses.functional.grouping import *
from topk_losses.functional.hinge import *
from topk_losses.functional.imbalance import *
from topk_losses.functional.noised import *
from topk_losses.functional.reduction import *
from topk_losses.functional.regularized import *
from topk_losses.functional.robust import *
from topk_losses.functional.smooth_svm import *
from topk_losses.functional.soft_topk import *
from topk_losses.functional.topk_entropy import *
from topk_losses.margins import uneven_margins as uneven_margins
from topk_losses.operators import *

# What each family exports, so that a new loss is named in its own file alone.
__all__ = sorted(name for name, value in globals().items() if inspect.isfunction(value))
