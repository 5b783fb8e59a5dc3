"""The papers' questions asked of letters: stand-ins, of minutes, for experiments that take days on CIFAR-100.

Each docstring says that the study is a stand-in. The results hold for letters and a perceptron, and do not carry over
to CIFAR-100 and a DenseNet. Nothing is searched: parameters that the question is not about have the papers' values.
"""

from __future__ import annotations

from collections.abc import Iterable

from topk_platform import (
    Arm,
    Claim,
    LabelNoise,
    LongTail,
    Loss,
    PerClass,
    Protocol,
    Regime,
    Study,
    TrainFraction,
    grid,
)
from topk_studies.berrada2018 import fraction_claims, temperature_claims, without_temperature
from topk_studies.claims import gaps, stand_ins
from topk_studies.garcin2022 import epsilon_claims, samples_claims
from topk_studies.letters import MLP, K, recipe
from topk_studies.letters_losses import SAMPLES

__all__ = [
    "letters_epsilon",
    "letters_fraction",
    "letters_margin",
    "letters_samples",
    "letters_temperature",
    "letters_tradeoff",
]

_SEEDS = 10
_PROTOCOL = Protocol(ensemble=_SEEDS)
_EPOCHS = 40
_CLEAN = Regime("clean", "letters", (PerClass(50),))
_NOISY = Regime("noise-0.4", "letters", (PerClass(50), LabelNoise(0.4)))
_TAIL = Regime("long-tail", "letters", (LongTail(50),))
_TOPK = (1, 2, 3, 5, 10)


def _study(
    name: str,
    description: str,
    regimes: Iterable[Regime],
    losses: Iterable[Loss],
    baseline: str | None = None,
    show: tuple[str, ...] = ("top1", "top5"),
    claims: Iterable[Claim] = (),
    first: Iterable[Arm] = (),
) -> Study:
    return Study(
        name=name,
        arms=(*first, *grid(regimes, [MLP], losses, k=K, recipe=recipe(_EPOCHS), protocol=_PROTOCOL)),
        topk=_TOPK,
        seeds=_SEEDS,
        baseline=baseline,
        show=show,
        description=f"stand-in on letters: {description}; an MLP; K = 5",
        claims=stand_ins(*claims),
    )


def letters_temperature() -> Study:
    """Return the stand-in for berrada2018's Table 6 and Figure 2: τ from 0 to 100 of the smooth top-5 SVM.

    τ = 0 is the limit, a fifth of the top-5 hinge with margin 5. The share of the gradient's non-zero entries, their
    Figure 2, is recorded for every epoch as ``gradient_density``.

    Example:
        >>> [arm.loss.label for arm in letters_temperature().arms]
        ['tau-0', 'tau-0.001', 'tau-0.01', 'tau-0.1', 'tau-1', 'tau-10', 'tau-100']
    """
    smooth = [
        Loss("smooth_topk_svm", fixed={"tau": tau}, label=f"tau-{tau:g}")
        for tau in (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    ]
    limit, how = without_temperature("tau-0", recipe(_EPOCHS), K)
    sharp = Arm(_CLEAN, MLP, limit, K, how, protocol=_PROTOCOL)
    question = "berrada2018 5.1, τ from 0 to 100"
    claims = temperature_claims(f"clean/{MLP.label}")
    return _study("letters_temperature", question, [_CLEAN], smooth, "tau-1", claims=claims, first=[sharp])


def letters_epsilon() -> Study:
    """Return the stand-in for garcin2022's Table 2: the noise scale ε from 0 to 100 with B = 10.

    ε = 0 is the calibrated hinge.

    Example:
        >>> [arm.loss.label for arm in letters_epsilon().arms][:3]
        ['epsilon-0', 'epsilon-0.0001', 'epsilon-0.001']
    """
    noised = [
        Loss(
            "noised_topk_hinge", fixed={"epsilon": epsilon, "samples": SAMPLES}, label=f"epsilon-{epsilon:g}"
        )
        for epsilon in (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)
    ]
    losses = [Loss("calibrated_topk_hinge", label="epsilon-0"), *noised]
    question = "garcin2022 4.1, ε from 0 to 100"
    claims = epsilon_claims(f"clean/{MLP.label}")
    return _study("letters_epsilon", question, [_CLEAN], losses, "epsilon-0.1", claims=claims)


def letters_samples() -> Study:
    """Return the stand-in for garcin2022's Table 3: the sample count B from 1 to 100 with ε = 0.2, and the expectation.

    Example:
        >>> [arm.loss.label for arm in letters_samples().arms][-2:]
        ['samples-100', 'expectation']
    """
    counts = (1, 2, 3, 5, 10, 50, 100)
    drawn = [
        Loss("noised_topk_hinge", fixed={"epsilon": 0.2, "samples": count}, label=f"samples-{count}")
        for count in counts
    ]
    exact = Loss("noised_topk_hinge", fixed={"epsilon": 0.2, "samples": None}, label="expectation")
    question, losses = "garcin2022 4.2, B from 1 to 100", [*drawn, exact]
    claims = samples_claims(f"clean/{MLP.label}")
    return _study("letters_samples", question, [_CLEAN], losses, "samples-10", claims=claims)


def letters_fraction() -> Study:
    """Return the stand-in for berrada2018's Table 2: a part of the training data, from 4 to 100 %.

    The smooth top-5 SVM has τ = 1, as on CIFAR-100; on ImageNet theirs had 0.1, which is beside it.

    Example:
        >>> [arm.regime.name for arm in letters_fraction().arms[::3]]
        ['4-percent', '10-percent', '25-percent', '50-percent', '100-percent']
    """
    regimes = [
        Regime(f"{percent}-percent", "letters", (TrainFraction(percent / 100),))
        for percent in (4, 10, 25, 50, 100)
    ]
    losses = [
        Loss("cross_entropy"),
        Loss("smooth_topk_svm", fixed={"tau": 1.0}),
        Loss("smooth_topk_svm", fixed={"tau": 0.1}, label="smooth_topk_svm-tau-0.1"),
    ]
    places = [f"{regime.name}/{MLP.label}" for regime in regimes]
    claims = fraction_claims(places[:-1], places[-1])
    return _study(
        "letters_fraction", "berrada2018 5.2, 4 to 100 % of the data", regimes, losses, claims=claims
    )


def letters_margin() -> Study:
    """Return the stand-in for garcin2022's uneven margins on a long tail: none, even and uneven, by their largest.

    Cross-entropy beside LDAM and the noised imbalanced hinge with ε = 0.01, B = 5 and scale 50, each with a largest
    margin of 0.1 to 0.8; accuracy is the mean over classes as well.

    Example:
        >>> [arm.loss.label for arm in letters_margin().arms][:3]
        ['cross_entropy', 'noised_topk_hinge', 'ldam-0.1']
    """
    margins = (0.1, 0.2, 0.4, 0.8)
    ldam = [
        Loss("ldam", fixed={"max_margin": m, "scale": 30.0}, head="cosine", label=f"ldam-{m:g}")
        for m in margins
    ]
    noised = [
        Loss(
            "noised_imbalanced_topk_hinge",
            fixed={"epsilon": 0.01, "samples": 5, "scale": 50.0, "max_margin": m},
            head="cosine",
            label=f"noised_imbalanced-{m:g}",
        )
        for m in margins
    ]
    even = Loss("noised_topk_hinge", fixed={"epsilon": 0.2, "samples": SAMPLES})
    return _study(
        "letters_margin",
        "garcin2022 4.5, uneven margins on a long tail",
        [_TAIL],
        [Loss("cross_entropy"), even, *ldam, *noised],
        show=("macro_top1", "macro_top5", "few_top5"),
        claims=_margin_claims(),
    )


def _margin_claims() -> tuple[Claim, ...]:
    column, source = f"long-tail/{MLP.label}", "garcin2022, Table 5"
    return (
        Claim(
            name="imbalanced-beats-ldam",
            text="The noised imbalanced hinge beats LDAM in macro-average top-5, both with a largest margin of 0.2.",
            source=source,
            contrasts=gaps([column], "noised_imbalanced-0.2", "ldam-0.2", "macro_top5"),
            tolerance=0.1,
        ),
        Claim(
            name="imbalanced-beats-cross-entropy",
            text="The noised imbalanced hinge beats cross-entropy in macro-average top-5.",
            source=source,
            contrasts=gaps([column], "noised_imbalanced-0.2", "cross_entropy", "macro_top5"),
            tolerance=0.5,
        ),
        Claim(
            name="ldam-beats-cross-entropy",
            text="LDAM beats cross-entropy in macro-average top-5.",
            source=source,
            contrasts=gaps([column], "ldam-0.2", "cross_entropy", "macro_top5"),
            tolerance=0.5,
        ),
    )


def letters_tradeoff() -> Study:
    """Return the stand-in for sawada2020's Table I: what a loss that trains for five guesses costs in one.

    Clean, with labels noised among look-alikes, and on the long tail.

    Example:
        >>> [arm.loss.label for arm in letters_tradeoff().arms][:3]
        ['cross_entropy', 'topk_grouping', 'topk_transition']
    """
    losses = [
        Loss("cross_entropy"),
        Loss("topk_grouping"),
        Loss("topk_transition"),
        Loss("smooth_topk_svm", fixed={"tau": 1.0}),
    ]
    return _study(
        "letters_tradeoff",
        "sawada2020 V, top-1 against top-5",
        [_CLEAN, _NOISY, _TAIL],
        losses,
        show=("top1", "top2", "top3", "top5", "top10"),
        claims=_tradeoff_claims(),
    )


def _tradeoff_claims() -> tuple[Claim, ...]:
    column, source = f"clean/{MLP.label}", "sawada2020, Table I"
    return (
        Claim(
            name="cross-entropy-best-in-top1",
            text="Cross-entropy is the best of all losses in top-1.",
            source=source,
            contrasts=gaps(
                [column], "cross_entropy", ("topk_grouping", "topk_transition", "smooth_topk_svm"), "top1"
            ),
            tolerance=0.5,
        ),
        Claim(
            name="transition-beats-cross-entropy-in-top5",
            text="Top-5 transition beats cross-entropy in top-5.",
            source=source,
            contrasts=gaps([column], "topk_transition", "cross_entropy", "top5"),
            tolerance=0.1,
        ),
        Claim(
            name="smooth-svm-beats-cross-entropy-in-top5",
            text="The smooth top-5 SVM beats cross-entropy in top-5.",
            source=source,
            contrasts=gaps([column], "smooth_topk_svm", "cross_entropy", "top5"),
            tolerance=0.1,
        ),
        Claim(
            name="grouping-behind-cross-entropy",
            text="Top-5 grouping is worse than cross-entropy in top-1 and in top-5.",
            source=source,
            contrasts=gaps([column], "cross_entropy", "topk_grouping", "top1", "top5"),
            tolerance=0.1,
        ),
    )
