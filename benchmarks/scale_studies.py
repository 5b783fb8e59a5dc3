"""Studies of the sizes that ``scale_stores.py`` makes stores for: many classes and test images, or many arms."""

from __future__ import annotations

from topk_platform import Arm, Float, Loss, Model, Protocol, Recipe, Regime, Study

CLASSES, PER_CLASS, K = 2965, 34, 10
TOPK = (1, 5, 10, 20)
LOSSES = ("cross_entropy", "smooth_topk_svm", "noised_topk_hinge", "topk_transition", "balanced_softmax")


def _loss(name: str, label: str = "") -> Loss:
    return Loss(name, {"learning_rate": Float(0.01, 1, log=True)}, {"learning_rate": 0.1}, label=label)


def many_classes(classes: int = CLASSES, seeds: int = 6) -> Study:
    """Return a study of five losses on images of many classes, with many test images."""
    sizes = {"classes": classes, "superclasses": classes // 5, "train": 1, "validation": 1, "test": PER_CLASS}
    regime = Regime("many_classes", "synthetic_images", options={**sizes, "size": 24})
    arms = [
        Arm(regime, Model("linear"), _loss(name), K, Recipe(5), protocol=Protocol(searches=3))
        for name in LOSSES
    ]
    return Study("many_classes", arms, topk=TOPK, trials=6, seeds=seeds, baseline="cross_entropy")


def many_arms(arms: int = 20_000, seeds: int = 3) -> Study:
    """Return a study of so many arms: a hundred losses in regimes of digits."""
    losses = [_loss("cross_entropy", f"loss{number}") for number in range(100)]
    made = [
        Arm(Regime(f"regime{number}", "digits"), Model("linear"), loss, 3, Recipe(2))
        for number in range(arms // len(losses))
        for loss in losses
    ]
    return Study("many_arms", made, topk=(1, 3), trials=1, seeds=seeds, baseline="loss0")
