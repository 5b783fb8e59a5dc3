"""Five small studies whose answers differ in kind; docs/answers.md has what each says. Two cores: three minutes."""

from topk_platform import Arm, LabelNoise, Loss, Model, PerClass, Protocol, Recipe, Regime, Study, grid
from topk_platform.recipes import SAWADA2020_RING

_CE, _SVM, _HINGE = Loss("cross_entropy"), Loss("smooth_topk_svm"), Loss("calibrated_topk_hinge")
_DIGITS = Recipe(epochs=15, learning_rate=0.1)
_IMAGES = {"classes": 20, "superclasses": 5, "train": 60, "validation": 20, "test": 100, "difficulty": 0.3}


def _ring(distance: int) -> Regime:
    return Regime(f"distance-{distance}", "ring", options={"sigma": 10, "distance": distance})


def _study(
    name: str, arms: list[Arm], k: int, seeds: int = 5, baseline: str | None = "cross_entropy"
) -> Study:
    return Study(name, arms, topk=(1, k), seeds=seeds, baseline=baseline)


two_modes = _study(
    "two_modes",
    grid(
        [_ring(30), _ring(90)],
        [Model("linear")],
        [_CE, Loss("topk_grouping"), Loss("topk_transition")],
        k=2,
        recipe=SAWADA2020_RING,
        protocol=Protocol(ensemble=5),
    ),
    k=2,
)

clean_digits = _study(
    "clean_digits", grid([Regime("clean", "digits")], [Model("mlp")], [_CE, _SVM], k=3, recipe=_DIGITS), k=3
)

few_images = _study(
    "few_images",
    grid(
        [
            Regime("images-60", "synthetic_images", options=_IMAGES),
            Regime("images-10", "synthetic_images", (PerClass(10),), options=_IMAGES),
        ],
        [Model("mlp")],
        [_CE, _SVM, _HINGE],
        k=5,
        recipe=Recipe(epochs=8),
    ),
    k=5,
)

too_fast = _study(
    "too_fast",
    grid(
        [Regime("noise-0.4", "digits", (LabelNoise(0.4),))],
        [Model("mlp")],
        [_CE, _SVM, Loss("calibrated_topk_hinge", fixed={"learning_rate": 1e4}, label="hinge-fast")],
        k=3,
        recipe=_DIGITS,
    ),
    k=3,
)

two_seeds = _study(
    "two_seeds",
    grid(
        [Regime("noise-0.8", "digits", (LabelNoise(0.8),))], [Model("mlp")], [_CE, _SVM], k=3, recipe=_DIGITS
    ),
    k=3,
    seeds=2,
)
