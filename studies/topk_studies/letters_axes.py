"""The map of label noise by images, and whether it depends on imbalance, on K, or on the network's capacity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from topk_platform import (
    Arm,
    Claim,
    Contrast,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    PerClass,
    Regime,
    Study,
    grid,
)
from topk_platform.specs import Condition
from topk_studies.berrada2018 import map_claims
from topk_studies.claims import gaps, stand_ins
from topk_studies.letters import MLP, SHOW, TOGETHER, TOPK, TRIALS, K, recipe
from topk_studies.letters_losses import balanced, others, uneven

__all__ = ["letters_capacity", "letters_imbalance", "letters_k", "letters_map"]

_NOISE = (0.0, 0.8)
"""Probabilities of label noise: on the map, the losses differ little between them."""

_NOISE_OF_MAP = (0.0, 0.4, 0.8)
_SIZES = {5: 100, 15: 60, 50: 28, 150: 20}
"""Epochs by images of each class: a training takes 500 to 2,900 steps."""

_IMAGES, _EPOCHS = 50, 28
_RATIOS = {1: 20, 10: 28, 50: 40}
"""Epochs by imbalance: the same for all losses, and more where there are fewer images."""

_KS = (1, 3, 5, 10)
_SEARCHES = 5
"""Independent searches of every arm, each of 15 trials and with two fresh seeds."""
_HIDDEN = (32, 128, 512)


def letters_map() -> Study:
    """Return the map: label noise 0, 0.4 and 0.8 by 5, 15, 50 and 150 images of each class.

    Each regime is called ``noise-P-images-N``. Each of four losses is searched five times. The claims are the paper's,
    and two that were written when an earlier map and ``letters_searches`` were known.

    Example:
        >>> [arm.regime.name for arm in letters_map().arms[:8:4]]
        ['noise-0-images-5', 'noise-0-images-15']
    """
    losses = _named(*_COMPARED)
    arms = [
        arm
        for noise in _NOISE_OF_MAP
        for size, epochs in _SIZES.items()
        for arm in _arms(_regime(f"images-{size}", noise, PerClass(size)), [MLP], losses, epochs=epochs)
    ]
    description = "letters of free typefaces: noise 0 to 0.8 by 5 to 150 images a class; an MLP; K = 5"
    return replace(_study("letters_map", arms, "", claims=_claims_about_the_map()), description=description)


def _claims_about_the_map() -> tuple[Claim, ...]:
    clean = [f"noise-0-images-{size}/{MLP.label}" for size in _SIZES]
    few, many = (f"noise-0.8-images-{size}/{MLP.label}" for size in (min(_SIZES), max(_SIZES)))
    claim = partial(_claim, source="stated when an earlier map and letters_searches were known")
    return (
        *stand_ins(*map_claims([clean[0], clean[-1]], many)),
        claim(
            name="ahead-with-few-images-and-noise",
            text="With noise 0.8 and five images the smooth SVM and the soft top-K loss are ahead in top-5.",
            contrasts=gaps([few], (_SVM, "soft_topk_loss"), _ENTROPY, "top5"),
        ),
        claim(
            name="the-svm-costs-the-first-guess",
            text="Without noise the smooth SVM is behind cross-entropy in top-1, however many images there are.",
            contrasts=gaps(clean, _ENTROPY, _SVM, "top1"),
        ),
    )


def letters_imbalance() -> Study:
    """Return the study of imbalance: 150 images of the largest class, 1, 10 or 50 times those of the smallest.

    Without label noise and with noise 0.8; the losses for long tails are among the five. Each loss is searched five
    times. The claims were written before that, when one earlier search of each loss was known.

    Example:
        >>> [arm.regime.name for arm in letters_imbalance().arms[::5]][:3]
        ['noise-0-ratio-1', 'noise-0-ratio-10', 'noise-0-ratio-50']
    """
    losses = _named("cross_entropy", "smooth_topk_svm", "noised_topk_hinge", *_UNEVEN)
    arms = [
        arm
        for noise in _NOISE
        for ratio, epochs in _RATIOS.items()
        for arm in _arms(_regime(f"ratio-{ratio}", noise, LongTail(ratio)), [MLP], losses, epochs=epochs)
    ]
    return _study(
        "letters_imbalance", arms, "imbalance 1, 10, 50; an MLP; K = 5", claims=_claims_about_imbalance()
    )


def _claims_about_imbalance() -> tuple[Claim, ...]:
    clean, noisy = ([f"noise-{noise:g}-ratio-{max(_RATIOS)}/{MLP.label}"] for noise in _NOISE)
    return (
        _claim(
            name="behind-on-the-clean-tail",
            text="Without noise the smooth SVM and the noised hinge are behind cross-entropy in top-5 at imbalance 50.",
            contrasts=gaps(clean, _ENTROPY, (_SVM, "noised_topk_hinge"), "top5"),
        ),
        _claim(
            name="ahead-on-the-noisy-tail",
            text="With noise 0.8 and imbalance 50 the smooth SVM is ahead of cross-entropy in top-5.",
            contrasts=gaps(noisy, _SVM, _ENTROPY, "top5"),
        ),
        _claim(
            name="uneven-margins-help-the-noised-hinge",
            text="Without noise uneven margins improve the noised hinge in top-5 and top-1 at imbalance 50.",
            contrasts=gaps(clean, "noised_imbalanced_topk_hinge", "noised_topk_hinge", "top5", "top1"),
        ),
    )


def letters_k() -> Study:
    """Return the study of K: every loss trained for K = 1, 3, 5 and 10 guesses, and selected by its top-K accuracy.

    Fifty images of each class, without label noise and with noise 0.8. The columns of one K answer for it, by the
    metric top-K. Each loss is searched five times. The claims were written when one search of each loss was known.

    Example:
        >>> {(arm.regime.name, arm.k, arm.metric) for arm in letters_k().only("noise-0-k-3/*").arms}
        {('noise-0-k-3', 3, 'top3')}
        >>> letters_k().searches, [claim.name for claim in letters_k().claims][:2]
        (5, ['svm-ahead-with-noise', 'each-k-costs-more-of-the-first-guess'])
    """
    losses = _named(*_COMPARED)
    arms = [
        arm
        for noise in _NOISE
        for k in _KS
        for arm in _arms(_regime(f"k-{k}", noise, PerClass(_IMAGES)), [MLP], losses, k=k)
    ]
    show = tuple(f"top{k}" for k in _KS)
    return _study("letters_k", arms, "an MLP; K = 1, 3, 5, 10", show, _claims_about_k())


def _claims_about_k() -> tuple[Claim, ...]:
    def gap(noise: float, k: int, ours: str, theirs: str, metric: str) -> Contrast:
        return gaps([f"noise-{noise:g}-k-{k}/{MLP.label}"], ours, theirs, metric)[0]

    claim = partial(_claim, source="stated after the first of five searches")
    prices = [gap(0, k, _ENTROPY, _SVM, "top1") for k in _KS]
    three, ten = (f"noise-0-k-{k}/{MLP.label}/{_SVM}" for k in (3, 10))
    return (
        claim(
            name="svm-ahead-with-noise",
            text="With noise 0.8 the smooth SVM for 3, 5 and 10 guesses is ahead of cross-entropy in these.",
            contrasts=[gap(0.8, k, _SVM, _ENTROPY, f"top{k}") for k in _KS if k > 1],
        ),
        claim(
            name="each-k-costs-more-of-the-first-guess",
            text="Without noise the smooth SVM loses more of the first guess to cross-entropy, the larger its K is.",
            contrasts=[more.minus(fewer) for fewer, more in pairwise(prices)],
        ),
        claim(
            name="more-guesses-than-are-shown",
            text="Without noise the smooth SVM for ten guesses is behind the one for three in top-3.",
            contrasts=[Contrast.between(three, ten, "top3")],
        ),
    )


def letters_capacity() -> Study:
    """Return the study of capacity: perceptrons with 32, 128 and 512 hidden units.

    Fifty images of each class, without label noise and with noise 0.8. Each loss is searched five times. The claims
    were written before that, when one earlier search of each loss was known.

    Example:
        >>> [arm.model.label for arm in letters_capacity().arms[:15:5]]
        ['mlp-32', 'mlp-128', 'mlp-512']
    """
    losses = _named(
        *("cross_entropy", "smooth_topk_svm", "noised_topk_hinge"),
        *("generalized_cross_entropy", "soft_topk_loss"),
    )
    models = [Model("mlp", {"hidden": hidden}, label=f"mlp-{hidden}") for hidden in _HIDDEN]
    regimes = [_regime(f"images-{_IMAGES}", noise, PerClass(_IMAGES)) for noise in _NOISE]
    arms = [arm for regime in regimes for arm in _arms(regime, models, losses)]
    description = "MLPs with 32, 128 and 512 hidden units; K = 5"
    return _study("letters_capacity", arms, description, claims=_claims_about_capacity())


def _claims_about_capacity() -> tuple[Claim, ...]:
    def gains(ours: str, theirs: str, metric: str) -> Contrast:
        pairs = [
            f"noise-{max(_NOISE):g}-images-{_IMAGES}/mlp-{hidden}" for hidden in (min(_HIDDEN), max(_HIDDEN))
        ]
        narrow, wide = gaps(pairs, ours, theirs, metric)
        return wide.minus(narrow)

    return (
        _claim(
            name="wide-networks-favour-the-svm",
            text="With noise 0.8 the smooth SVM gains on cross-entropy in top-5 from 32 to 512 hidden units.",
            contrasts=[gains(_SVM, _ENTROPY, "top5")],
        ),
        _claim(
            name="wide-networks-cost-the-svm-its-first-guess",
            text="With noise 0.8 the smooth SVM loses more of the first guess with 512 hidden units than with 32.",
            contrasts=[gains(_ENTROPY, _SVM, "top1")],
        ),
    )


_COMPARED = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge", "soft_topk_loss")
_UNEVEN = ("noised_imbalanced_topk_hinge", "ldam")
_SVM, _ENTROPY = "smooth_topk_svm", "cross_entropy"
_claim = partial(Claim, source="stated after one earlier search, before these five", tolerance=0.5)


def _named(*names: str) -> list[Loss]:
    known = {loss.name: loss for loss in [*balanced(), *others(), *uneven()]}
    return [known[name] for name in names]


def _regime(name: str, noise: float, condition: Condition) -> Regime:
    return Regime(f"noise-{noise:g}-{name}", "letters", (condition, LabelNoise(noise)))


def _arms(
    regime: Regime, models: Sequence[Model], losses: Sequence[Loss], k: int = K, epochs: int = _EPOCHS
) -> tuple[Arm, ...]:
    protocol = replace(TOGETHER, searches=_SEARCHES)
    return grid([regime], models, losses, k=k, recipe=recipe(epochs), protocol=protocol)


def _study(
    name: str,
    arms: Iterable[Arm],
    description: str,
    show: tuple[str, ...] = SHOW,
    claims: tuple[Claim, ...] = (),
) -> Study:
    return Study(
        name=name,
        arms=tuple(arms),
        topk=TOPK,
        trials=TRIALS * _SEARCHES,
        seeds=2 * _SEARCHES,
        show=show,
        description=f"letters of free typefaces, noise 0 and 0.8: {description}",
        claims=claims,
    )
