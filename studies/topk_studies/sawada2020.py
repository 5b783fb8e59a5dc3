"""sawada2020's experiment on images; those on points around a circle are in :mod:`topk_studies.ring`.

A. Sawada, E. Kaneko and K. Sagi, Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020.
Settings are the paper's, fixed, and nothing is searched.
"""

from __future__ import annotations

from topk_platform import Arm, Model, Regime, Study
from topk_platform.recipes import SAWADA2020_CIFAR100_CUTOUT, SAWADA2020_CIFAR100_MIXUP
from topk_studies.published import Row, composed, loss_of, rows_of

__all__ = ["sawada2020_cifar100"]

_K = 5
_RECIPES = {"cutout": SAWADA2020_CIFAR100_CUTOUT, "mixup": SAWADA2020_CIFAR100_MIXUP}


def _arm(row: Row) -> Arm:
    # Its τ the paper does not name; on CIFAR-100 berrada2018, from whom the loss is taken, has τ = 1 for K = 5.
    loss = loss_of(row, tau=1.0) if row.loss == "smooth_topk_svm" else loss_of(row)
    model = Model(f"{row.model}_small", label=row.model)
    return Arm(Regime(row.level, "cifar100"), model, loss, _K, _RECIPES[row.level])


def sawada2020_cifar100() -> Study:
    """Return the study of Table I: CIFAR-100, ResNet-18 and DenseNet-121 with Cutout or Mixup, K = 5, ten seeds.

    Top-1 is that of the epoch that validated best in top-1, top-5 that of the best in top-5, as in the paper. The
    smooth top-5 SVM takes no soft labels, hence no Mixup; its τ, which the paper does not name, is berrada2018's 1.
    Top-2 to top-10 accuracies, of Figure 6, and the candidates for 99 %, of Section V-B, are recorded.

    Example:
        >>> len(sawada2020_cifar100().arms), len(sawada2020_cifar100().published)
        (14, 28)
    """
    rows = sorted(rows_of("sawada2020", "I"), key=lambda row: row.model, reverse=True)
    arms, published = composed(rows, _arm)
    return Study(
        name="sawada2020_cifar100",
        arms=arms,
        topk=tuple(range(1, 11)),
        seeds=10,
        show=("top1", "top5"),
        device="cuda",
        description="sawada2020 V: CIFAR-100, Cutout or Mixup; ResNet-18, DenseNet-121; four losses, K = 5",
        published=published,
    )
