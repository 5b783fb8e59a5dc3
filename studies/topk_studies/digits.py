"""Which loss ranks handwritten digits best when labels are wrong or classes are rare?"""

from __future__ import annotations

from topk_platform import LabelNoise, LongTail, Model, Recipe, Regime, Study, grid
from topk_studies.searched_losses import drawn, searched

__all__ = ["digits"]

_TAIL = Regime("long-tail", "digits", (LongTail(20),))
_REGIMES = (
    Regime("balanced", "digits"),
    Regime("noise-0.4", "digits", (LabelNoise(0.4),)),
    Regime("noise-0.8", "digits", (LabelNoise(0.8),)),
    _TAIL,
)
_MLP = Model("mlp", {"hidden": 128})
# Without warm-up and clipping, all ReLUs die at the start in some seeds of the hinges.
_RECIPE = Recipe(epochs=40, warmup=2, clip_norm=1.0)


def digits() -> Study:
    """Return the study of scikit-learn's 8×8 digits: four regimes, nine losses, top-3 accuracy.

    It takes minutes on two cores. The first values of the searches are those of berrada2018 (τ = 1), garcin2022
    (ε = 0.2 with B = 10; ε = 0.01 with B = 5 and a largest margin of 0.2), Cao et al. 2019 (largest margin 0.5, scale
    30) and Zhang and Sabuncu 2018 (γ = 0.7).

    Example:
        >>> len(digits().arms)
        30
    """
    losses = [
        *map(searched, ("cross_entropy", "smooth_topk_svm", "calibrated_topk_hinge")),
        drawn(),
        *map(searched, ("generalized_cross_entropy", "soft_topk_loss", "autkc")),
    ]
    uneven = [searched(name) for name in ("ldam", "noised_imbalanced_topk_hinge")]
    return Study(
        name="digits",
        arms=(
            *grid(_REGIMES, [_MLP], losses, k=3, recipe=_RECIPE),
            *grid([_TAIL], [_MLP], uneven, k=3, recipe=_RECIPE),
        ),
        topk=(1, 2, 3, 5),
        show=("top1", "top3"),
        description="8×8 handwritten digits: balanced, label noise 0.4 and 0.8, long tail; an MLP; K = 3",
    )
