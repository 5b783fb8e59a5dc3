"""garcin2022's experiments: the noised top-K hinges on balanced and on long-tailed data.

C. Garcin, M. Servajean, A. Joly and J. Salmon, Stochastic Smoothing of the Top-K Calibrated Hinge Loss for Deep
Imbalanced Classification, ICML 2022. Settings are the paper's, fixed, and nothing is searched. Left out: ImageNet-LT,
for which the text at hand gives neither learning rates nor the losses' parameters; Figure 3, the seconds per epoch,
which depend on the machine (``benchmarks/`` has the losses' times).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, Contrast, Loss, Model, Recipe, Regime, Study
from topk_studies.berrada2018 import noisy_cifar100
from topk_studies.claims import gaps, mean_of
from topk_studies.published import Row, composed, loss_of, rows_of
from topk_studies.recipes import (
    GARCIN2022_CIFAR100,
    GARCIN2022_IMAGENET,
    GARCIN2022_IMAGENET_NOISED,
    GARCIN2022_IMAGENET_SVM,
    GARCIN2022_PLANTNET,
)

__all__ = [
    "epsilon_claims",
    "garcin2022_epsilon",
    "garcin2022_imagenet",
    "garcin2022_noise",
    "garcin2022_plantnet",
    "garcin2022_samples",
    "samples_claims",
    "tail_claims",
]

_PAPER = "garcin2022"
_K = 5
_CLEAN = Regime("clean", "cifar100")
_PLANTNET_KS = (1, 3, 5, 10)


def _densenet(row: Row) -> Model:
    return Model("densenet", {"depth": 40, "growth": 40}, label=row.model)


def _epsilon_arm(row: Row) -> Arm:
    loss = loss_of(row, f"epsilon-{row.parameters['epsilon']:g}")
    return Arm(_CLEAN, _densenet(row), loss, _K, GARCIN2022_CIFAR100)


def garcin2022_epsilon() -> Study:
    """Return the study of Table 2: the noise scale ε from 0 to 100 with B = 10 on CIFAR-100.

    ε = 0 is the calibrated hinge. The paper's numbers are the best validation accuracies of one run; ours beside them
    are test accuracies of three seeds.

    Example:
        >>> [arm.loss.label for arm in garcin2022_epsilon().arms][:4]
        ['epsilon-0', 'epsilon-0.0001', 'epsilon-0.001', 'epsilon-0.01']
    """
    arms, published = composed(rows_of(_PAPER, "2"), _epsilon_arm)
    return Study(
        name="garcin2022_epsilon",
        arms=arms,
        seeds=3,
        baseline="epsilon-0.1",
        show=("top5",),
        device="cuda",
        description="garcin2022 4.1: CIFAR-100, ε from 0 to 100; DenseNet 40-40; noised top-5 hinge",
        published=published,
        claims=epsilon_claims("clean/densenet40-40"),
    )


def _samples_arm(row: Row) -> Arm:
    loss = loss_of(row, f"samples-{row.parameters['samples']}")
    return Arm(_CLEAN, _densenet(row), loss, _K, GARCIN2022_CIFAR100)


def garcin2022_samples() -> Study:
    """Return the study of Table 3: the sample count B from 1 to 100 with ε = 0.2 on CIFAR-100.

    The paper's numbers are the best validation accuracies of one run; ours beside them are test accuracies of three
    seeds.

    Example:
        >>> [arm.loss.label for arm in garcin2022_samples().arms][-2:]
        ['samples-50', 'samples-100']
    """
    arms, published = composed(rows_of(_PAPER, "3"), _samples_arm)
    return Study(
        name="garcin2022_samples",
        arms=arms,
        seeds=3,
        baseline="samples-10",
        show=("top5",),
        device="cuda",
        description="garcin2022 4.2: CIFAR-100, B from 1 to 100; DenseNet 40-40; noised top-5 hinge",
        published=published,
        claims=samples_claims("clean/densenet40-40"),
    )


def _noise_arm(row: Row) -> Arm:
    return Arm(noisy_cifar100(row.level), _densenet(row), loss_of(row), _K, GARCIN2022_CIFAR100)


def garcin2022_noise() -> Study:
    """Return the study of Tables 4 and 6: label noise from 0 to 0.4 within CIFAR-100's superclasses.

    The smooth top-5 SVM with τ = 1 and the noised top-5 hinge with ε = 0.2 and B = 10. The weights with the best
    validation top-5 accuracy are tested, by top-1 as well. Four seeds, as in the paper's final version; the numbers
    are its first version's, of two.

    Example:
        >>> [arm.name for arm in garcin2022_noise().arms][:2]
        ['noise-0.0/densenet40-40/cross_entropy', 'noise-0.0/densenet40-40/smooth_topk_svm']
    """
    arms, published = composed(rows_of(_PAPER, "4", "6"), _noise_arm)
    return Study(
        name="garcin2022_noise",
        arms=arms,
        seeds=4,
        show=("top1", "top5"),
        device="cuda",
        description="garcin2022 4.4: CIFAR-100, label noise 0 to 0.4; DenseNet 40-40; three losses, K = 5",
        published=published,
        claims=_noise_claims(),
    )


def _plantnet_arm(row: Row) -> Arm:
    ks = _PLANTNET_KS if row.k_train is None else (row.k_train,)
    label = "" if row.k_train is None else f"{row.loss}-k{row.k_train}"
    options = {"architecture": "resnet50", "weights": "IMAGENET1K_V1"}
    k = row.k_train or _K
    return Arm(
        Regime("plantnet300k", "plantnet300k"),
        Model("torchvision", options, label=row.model),
        loss_of(row, label),
        k,
        replace(GARCIN2022_PLANTNET, keep=tuple(f"macro_top{k}" for k in ks)),
        metric=f"macro_top{k}",
    )


def garcin2022_plantnet() -> Study:
    """Return the study of Tables 5 and 7: Pl@ntNet-300K, macro-average and plain top-K accuracy, K = 1, 3, 5, 10.

    Top-K losses have an arm for every K that they train for, and numbers for that K. Cross-entropy and LDAM have one
    arm each; each of its macro-average accuracies is that of the epoch with the best validation value of the same
    metric. Table 7's plain accuracies are of that same epoch in the paper; here they are of the epoch that is best in
    macro-average top-5. Three seeds, as in the paper's final version; the numbers are its first version's, of one
    run.

    The noised balanced hinge and the focal loss are left out, because the paper gives neither ε and B for the former
    nor γ for the latter. The paper does not say which ImageNet weights training starts from; here they are
    torchvision's first.

    Example:
        >>> [arm.loss.label for arm in garcin2022_plantnet().arms][-3:]
        ['smooth_topk_svm-k3', 'smooth_topk_svm-k5', 'smooth_topk_svm-k10']
    """
    rows = sorted(rows_of(_PAPER, "5", "7"), key=lambda row: row.loss)
    arms, published = composed(rows, _plantnet_arm)
    return Study(
        name="garcin2022_plantnet",
        arms=arms,
        topk=_PLANTNET_KS,
        seeds=3,
        show=tuple(f"{kind}top{k}" for kind in ("macro_", "") for k in _PLANTNET_KS),
        device="cuda",
        description="garcin2022 4.5: Pl@ntNet-300K, a long tail; pretrained ResNet-50; four losses, K = 1 to 10",
        published=published,
        claims=_plantnet_claims(),
    )


def garcin2022_imagenet() -> Study:
    """Return the study of the final version's appendix D: ImageNet, K = 1 and 5.

    The smooth top-K SVM with τ = 0.1 and the noised top-K hinge with ε = 0.5 and B = 10; three seeds. No published
    numbers stand beside it, for the text at hand lacks them.

    Example:
        >>> [arm.loss.label for arm in garcin2022_imagenet().arms][:3]
        ['cross_entropy', 'smooth_topk_svm-k1', 'noised_topk_hinge-k1']
    """
    arms = [_imagenet_arm(Loss("cross_entropy"), _K, GARCIN2022_IMAGENET)]
    for k in (1, _K):
        smooth = Loss("smooth_topk_svm", fixed={"tau": 0.1}, label=f"smooth_topk_svm-k{k}")
        noised = Loss(
            "noised_topk_hinge", fixed={"epsilon": 0.5, "samples": 10}, label=f"noised_topk_hinge-k{k}"
        )
        arms += [
            _imagenet_arm(smooth, k, replace(GARCIN2022_IMAGENET_SVM, keep=(f"top{k}",))),
            _imagenet_arm(noised, k, replace(GARCIN2022_IMAGENET_NOISED, keep=(f"top{k}",))),
        ]
    return Study(
        name="garcin2022_imagenet",
        arms=arms,
        seeds=3,
        show=("top1", "top5"),
        device="cuda",
        description="garcin2022 D (final version): ImageNet; ResNet-18; three losses, K = 1 and 5",
        claims=(_imagenet_claim(),),
    )


def _imagenet_arm(loss: Loss, k: int, recipe: Recipe) -> Arm:
    model = Model("torchvision", {"architecture": "resnet18"}, label="resnet18")
    return Arm(Regime("imagenet", "imagenet"), model, loss, k, recipe)


_CE, _SVM, _NOISED = "cross_entropy", "smooth_topk_svm", "noised_topk_hinge"


def tail_claims(pair: str) -> tuple[Claim, ...]:
    """Return the paper's findings on long tails.

    Args:
        pair: ``regime/model`` of the long tail.
    """
    return tuple(
        Claim(
            name=f"imbalanced-beats-{name}",
            text=f"On a long tail the noised imbalanced hinge beats {words} in macro-average top-5.",
            source="garcin2022, Table 5",
            contrasts=gaps([pair], "noised_imbalanced_topk_hinge", loss, "macro_top5"),
            tolerance=0.5,
        )
        for name, words, loss in (
            ("cross-entropy", "cross-entropy", _CE),
            ("ldam", "LDAM", "ldam"),
            ("even-margins", "the noised hinge with even margins", _NOISED),
        )
    )


def epsilon_claims(column: str) -> tuple[Claim, ...]:
    """Return the paper's findings on ε, for arms ``epsilon-0`` to ``epsilon-100``."""
    arm = {e: f"{column}/epsilon-{e}" for e in ("0", "0.0001", "0.001", "0.01", "0.1", "1", "10", "100")}
    claim = partial(Claim, source="garcin2022, Table 2")
    return (
        claim(
            name="small-epsilon-fails",
            text="ε ≤ 1e-3 fails to train, the calibrated hinge (ε = 0) among them: top-5 below 50 %.",
            contrasts=mean_of((arm[e] for e in ("0", "0.0001", "0.001")), "top5"),
            direction="below",
            bound=50,
        ),
        claim(
            name="from-0.01-it-trains",
            text="ε ≥ 0.01 trains to a very high top-5 accuracy: above 90 %.",
            contrasts=mean_of((arm[e] for e in ("0.01", "0.1", "1", "10", "100")), "top5"),
            bound=90,
        ),
        claim(
            name="robust-to-large-epsilon",
            text="Training is robust to large ε: 1, 10 and 100 lie within 2 points of 0.1.",
            contrasts=[Contrast.between(arm[e], arm["0.1"], "top5") for e in ("1", "10", "100")],
            direction="within",
            tolerance=2,
        ),
        claim(
            name="best-near-0.1",
            text="The best ε is near 0.1, ahead of 0.01 and of 100.",
            contrasts=[Contrast.between(arm["0.1"], arm[e], "top5") for e in ("0.01", "100")],
            tolerance=0.1,
        ),
    )


def samples_claims(
    column: str, others: tuple[str, ...] = ("1", "2", "3", "5", "50", "100")
) -> tuple[Claim, ...]:
    """Return the paper's findings on B, for arms ``samples-1`` to ``samples-100``."""
    arms = [f"{column}/samples-{b}" for b in others]
    return (
        Claim(
            name="samples-hardly-matter",
            text="B hardly matters: top-5 accuracy lies within half a point of that of B = 10.",
            source="garcin2022, Table 3",
            contrasts=[Contrast.between(arm, f"{column}/samples-10", "top5") for arm in arms],
            direction="within",
            tolerance=0.5,
        ),
    )


def _noise_claims() -> tuple[Claim, ...]:
    clean, *noisy = (f"noise-{p}/densenet40-40" for p in ("0.0", "0.1", "0.2", "0.3", "0.4"))
    claim = partial(Claim, source="garcin2022, Table 4", tolerance=0.5)
    top1 = "garcin2022, Table 6"
    best = [
        *gaps([clean, *noisy[1:]], _NOISED, _SVM, "top5"),
        *gaps([clean, *noisy], _NOISED, _CE, "top5"),
    ]
    return (
        claim(
            name="noised-beats-cross-entropy-with-noise",
            text="With noisy labels the noised top-5 hinge gains over cross-entropy in top-5.",
            contrasts=gaps(noisy, _NOISED, _CE, "top5"),
        ),
        claim(
            name="smooth-beats-cross-entropy-with-noise",
            text="With noisy labels the smooth top-5 SVM gains over cross-entropy in top-5.",
            contrasts=gaps(noisy, _SVM, _CE, "top5"),
        ),
        claim(
            name="noised-best",
            text="The noised hinge is the best in top-5 but for p = 0.1, where the smooth SVM is slightly ahead.",
            contrasts=best,
            tolerance=0.0,  # the paper's lead without noise is 0.01 points: any lead counts
        ),
        claim(
            name="level-without-noise",
            text="Without noise the three losses are level in top-5.",
            contrasts=gaps([clean], (_NOISED, _SVM), _CE, "top5"),
            direction="within",
        ),
        claim(
            name="cross-entropy-ahead-in-top1-without-noise",
            text="Without noise cross-entropy is better in top-1 than the top-5 losses.",
            source=top1,
            contrasts=gaps([clean], _CE, (_NOISED, _SVM), "top1"),
        ),
        claim(
            name="noised-ahead-in-top1-with-much-noise",
            text="With much noise (p from 0.2 on) the noised top-5 hinge is better than cross-entropy in top-1.",
            source=top1,
            contrasts=gaps(noisy[1:], _NOISED, _CE, "top1"),
        ),
    )


def _plantnet_claims() -> tuple[Claim, ...]:
    column = "plantnet300k/resnet50-pretrained"
    claim = partial(Claim, source="garcin2022, Table 5", tolerance=0.5)

    def against(ours: str, theirs: str, ks: tuple[int, ...]) -> list[Contrast]:
        return [
            Contrast.between(f"{column}/{ours.format(k)}", f"{column}/{theirs.format(k)}", f"macro_top{k}")
            for k in ks
        ]

    noised, smooth = "noised_imbalanced_topk_hinge-k{}", "smooth_topk_svm-k{}"
    return (
        claim(
            name="imbalanced-beats-ldam",
            text="The noised imbalanced hinge beats LDAM in macro-average top-K, for every K.",
            contrasts=against(noised, "ldam", _PLANTNET_KS),
            tolerance=0.1,
        ),
        claim(
            name="most-where-k-is-small",
            text="It is more ahead of LDAM for K = 1 (1.8 points) than half a point.",
            contrasts=against(noised, "ldam", (1,)),
            bound=0.5,
            tolerance=0.0,
        ),
        claim(
            name="imbalanced-beats-cross-entropy",
            text="The noised imbalanced hinge beats cross-entropy in macro-average top-K, for every K.",
            contrasts=against(noised, "cross_entropy", _PLANTNET_KS),
        ),
        claim(
            name="smooth-fails-on-the-tail",
            text="The smooth top-K SVM fails on the tail: behind cross-entropy in macro-average top-K, K = 3, 5, 10.",
            contrasts=against("cross_entropy", smooth, (3, 5, 10)),
        ),
        claim(
            name="ldam-beats-cross-entropy",
            text="LDAM beats cross-entropy in macro-average top-K, for every K.",
            contrasts=against("ldam", "cross_entropy", _PLANTNET_KS),
        ),
    )


def _imagenet_claim() -> Claim:
    return Claim(
        name="level-on-imagenet",
        text="With little label noise, many samples and balance the three losses give similar results.",
        source="garcin2022, appendix D (final version)",
        contrasts=[
            c
            for k in (1, 5)
            for c in gaps(["imagenet/resnet18"], (f"{_SVM}-k{k}", f"{_NOISED}-k{k}"), _CE, f"top{k}")
        ],
        direction="within",
        tolerance=0.5,
    )
