"""The experiment of sawada2020 on images; those on points around a circle are in :mod:`topk_studies.ring`.

A. Sawada, E. Kaneko and K. Sagi, Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020.
All settings are fixed to the paper's; nothing is searched.
"""

from __future__ import annotations

from functools import partial

from topk_platform import Arm, Claim, Contrast, Model, Regime, Study
from topk_studies.claims import gaps
from topk_studies.published import Row, composed, loss_of, rows_of
from topk_studies.recipes import SAWADA2020_CIFAR100_CUTOUT, SAWADA2020_CIFAR100_MIXUP

__all__ = ["sawada2020_cifar100"]

_K = 5
_RECIPES = {"cutout": SAWADA2020_CIFAR100_CUTOUT, "mixup": SAWADA2020_CIFAR100_MIXUP}


def _arm(row: Row) -> Arm:
    # The paper does not name τ. The loss is berrada2018's, who use τ = 1 on CIFAR-100 with K = 5.
    loss = loss_of(row, tau=1.0) if row.loss == "smooth_topk_svm" else loss_of(row)
    model = Model(f"{row.model}_small", label=row.model)
    return Arm(Regime(row.level, "cifar100"), model, loss, _K, _RECIPES[row.level])


def sawada2020_cifar100() -> Study:
    """Return the study of Table I: CIFAR-100, ResNet-18 and DenseNet-121 with Cutout or Mixup, K = 5, ten seeds.

    As in the paper, top-1 accuracy is measured after the epoch with the best validation top-1, and top-5 accuracy after
    the epoch with the best validation top-5. The smooth top-5 SVM does not take soft labels, so it has no arm with
    Mixup. The paper does not name its τ; here it is 1, as in berrada2018. Top-2 to top-10 accuracies (Figure 6) and the
    number of candidates for 99 % (Section V-B) are recorded too.

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
        claims=_claims(),
    )


_CE, _SVM, _GROUPING, _TRANSITION = "cross_entropy", "smooth_topk_svm", "topk_grouping", "topk_transition"


def _claims() -> tuple[Claim, ...]:
    cutout, mixup = (
        [f"{how}/{model}" for model in ("resnet18", "densenet121")] for how in ("cutout", "mixup")
    )
    resnet = "mixup/resnet18"
    best_with_mixup = [
        Contrast.between(f"{column}/{_TRANSITION}", f"{how}/{column.split('/')[1]}/{loss}", "top5")
        for column in mixup
        for how in ("cutout", "mixup")
        for loss in (_CE, _GROUPING, _TRANSITION, *([_SVM] if how == "cutout" else []))
        if (how, loss) != ("mixup", _TRANSITION)
    ]
    figure = "sawada2020, Fig. 6"
    claim = partial(Claim, source="sawada2020, Table I", tolerance=0.1)
    return (
        claim(
            name="cross-entropy-best-in-top1",
            text="Cross-entropy is the best of all losses in top-1.",
            contrasts=[
                *gaps([*cutout, *mixup], _CE, (_GROUPING, _TRANSITION), "top1"),
                *gaps(cutout, _CE, _SVM, "top1"),
            ],
            tolerance=0.5,
        ),
        claim(
            name="transition-beats-cross-entropy-in-top5",
            text="Top-5 transition beats cross-entropy in top-5, except on DenseNet-121 with Cutout.",
            contrasts=gaps([cutout[0], *mixup], _TRANSITION, _CE, "top5"),
        ),
        claim(
            name="smooth-svm-beats-cross-entropy-in-top5",
            text="The smooth top-5 SVM beats cross-entropy in top-5 on ResNet-18 with Cutout.",
            contrasts=gaps(cutout[:1], _SVM, _CE, "top5"),
        ),
        claim(
            name="cross-entropy-best-on-densenet-with-cutout",
            text="On DenseNet-121 with Cutout cross-entropy is the best in top-5.",
            contrasts=gaps(cutout[1:], _CE, (_SVM, _GROUPING, _TRANSITION), "top5"),
        ),
        claim(
            name="grouping-behind-cross-entropy",
            text="Top-5 grouping is worse than cross-entropy in top-1 and in top-5.",
            contrasts=gaps([*cutout, *mixup], _CE, _GROUPING, "top1", "top5"),
        ),
        claim(
            name="transition-with-mixup-best-in-top5",
            text="For each network, top-5 transition with Mixup has the best top-5 accuracy.",
            contrasts=best_with_mixup,
        ),
        claim(
            name="turning-points-transition",
            text="On ResNet-18 with Mixup cross-entropy is ahead of transition for k ≤ 2.",
            source=figure,
            contrasts=gaps([resnet], _CE, _TRANSITION, "top1", "top2"),
        ),
        claim(
            name="transition-ahead-from-k-3",
            text="On ResNet-18 with Mixup top-5 transition is ahead of cross-entropy for k from 3 to 10.",
            source=figure,
            contrasts=gaps([resnet], _TRANSITION, _CE, *(f"top{k}" for k in range(3, 11))),
        ),
        claim(
            name="grouping-ahead-from-k-6",
            text="On ResNet-18 with Mixup top-5 grouping is ahead of cross-entropy for k from 6 to 10.",
            source=figure,
            contrasts=gaps([resnet], _GROUPING, _CE, *(f"top{k}" for k in range(6, 11))),
        ),
        claim(
            name="transition-ahead-from-k-9-on-densenet",
            text="On DenseNet-121 with Cutout top-5 transition is ahead of cross-entropy for k = 9 and 10.",
            source="sawada2020, V-B",
            contrasts=gaps(cutout[1:], _TRANSITION, _CE, "top9", "top10"),
        ),
        claim(
            name="fewer-candidates",
            text="On ResNet-18 with Mixup top-5 transition needs fewer candidates for 99 % than cross-entropy (by 8).",
            source="sawada2020, V-B",
            contrasts=gaps([resnet], _CE, _TRANSITION, "candidates99"),
            tolerance=1,  # class; the paper's own difference is 8
        ),
    )
