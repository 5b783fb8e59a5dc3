"""Which loss wins where? Letters with labels that are right, partly wrong or mostly wrong, by the number of images."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from topk_platform import Arm, Claim, LabelNoise, PerClass, Regime, Study, grid
from topk_studies.berrada2018 import map_claims
from topk_studies.claims import gaps, stand_ins
from topk_studies.letters import MLP, SHOW, TOGETHER, TOPK, TRIALS, K, recipe, searched_on_letters

__all__ = ["letters_map"]

_NOISE = (0.0, 0.4, 0.8)
_EPOCHS = {5: 100, 15: 60, 50: 28, 150: 20}
"""Epochs by images of each class: a training takes 500 to 2,900 steps."""

_SEARCHES = 5
_LOSSES = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge", "soft_topk_loss")


def letters_map() -> Study:
    """Return the map: label noise 0, 0.4 and 0.8 by 5, 15, 50 and 150 images of each class.

    Each regime is called ``noise-P-images-N``. Each of four losses is searched five times, and each chosen
    configuration is trained with two fresh seeds. The claims are the paper's, and two that were written when an earlier
    map and :func:`~topk_studies.letters.letters` were known.

    Example:
        >>> [arm.regime.name for arm in letters_map().arms[:8:4]]
        ['noise-0-images-5', 'noise-0-images-15']
    """
    losses, protocol = searched_on_letters(*_LOSSES), replace(TOGETHER, searches=_SEARCHES)
    arms: list[Arm] = []
    for noise in _NOISE:
        for images, epochs in _EPOCHS.items():
            conditions = PerClass(images), LabelNoise(noise)
            regime = Regime(f"noise-{noise:g}-images-{images}", "letters", conditions)
            arms += grid([regime], [MLP], losses, k=K, recipe=recipe(epochs), protocol=protocol)
    return Study(
        name="letters_map",
        arms=arms,
        topk=TOPK,
        trials=TRIALS * _SEARCHES,
        seeds=2 * _SEARCHES,
        show=SHOW,
        description="letters of free typefaces: noise 0 to 0.8 by 5 to 150 images a class; an MLP; K = 5",
        claims=_claims(),
    )


def _claims() -> tuple[Claim, ...]:
    clean = [f"noise-0-images-{images}/{MLP.label}" for images in _EPOCHS]
    few, many = (f"noise-0.8-images-{images}/{MLP.label}" for images in (min(_EPOCHS), max(_EPOCHS)))
    claim = partial(Claim, source="stated when an earlier map and `letters` were known", tolerance=0.5)
    return (
        *stand_ins(*map_claims([clean[0], clean[-1]], many)),
        claim(
            name="ahead-with-few-images-and-noise",
            text="With noise 0.8 and five images the smooth SVM and the soft top-K loss are ahead in top-5.",
            contrasts=gaps([few], ("smooth_topk_svm", "soft_topk_loss"), "cross_entropy", "top5"),
        ),
        claim(
            name="the-svm-costs-the-first-guess",
            text="Without noise the smooth SVM is behind cross-entropy in top-1, however many images there are.",
            contrasts=gaps(clean, "cross_entropy", "smooth_topk_svm", "top1"),
        ),
    )
