"""The small trials of ``regression.py``: every loss in every kind of regime, every network, every part of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from topk_losses import use_backend
from topk_platform.data import load
from topk_platform.specs import (
    EMA,
    Arm,
    Augmentation,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    PerClass,
    Recipe,
    Regime,
    Schedule,
    TrainFraction,
    Trial,
)
from topk_platform.training import finish, run_trials
from topk_platform.training.loss_table import LOSSES

__all__ = ["Backend", "Case", "cases", "measure"]

Backend = Literal["auto", "torch"]
"""What computes the losses: compiled kernels where there are such, or plain torch."""

_REGIMES = (
    Regime("clean", "digits"),
    Regime("noise", "digits", conditions=(LabelNoise(0.4),)),
    Regime("tail", "digits", conditions=(LongTail(20),)),
    Regime("fraction", "digits", conditions=(TrainFraction(0.25),)),
    Regime("few", "digits", conditions=(PerClass(10),)),
)
_MLP, _TWO_EPOCHS = Model("mlp", {"hidden": 32}), Recipe(epochs=2, learning_rate=0.05)
_VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "autkc": ({"surrogate": "hinge"}, {"surrogate": "logistic"}, {"surrogate": "exponential"}),
    "cross_entropy": ({"temperature": 0.5},),
    "noised_imbalanced_topk_hinge": ({"samples": None},),
    "noised_topk_hinge": ({"samples": None}, {"samples": 1, "epsilon": 1.0}),
    "smooth_topk_svm": ({"tau": 0.1}, {"margin": 0.5}),
    "soft_topk_loss": (
        {"shape": "gaussian"},
        {"shape": "laplace"},
        *({"shape": shape, "form": "error"} for shape in ("logistic", "clip", "power", "midpoint")),
    ),
    "sorting_topk_cross_entropy": ({"relaxation": "logistic"}, {"top1": 0.25}),
    "topk_transition": ({"detach_weight": True},),
}
_IMAGES = Regime(
    "images",
    "synthetic_images",
    options={"classes": 6, "superclasses": 3, "train": 24, "validation": 20, "test": 20, "size": 16},
)
_RECIPES: Mapping[str, Recipe] = {
    "adam": replace(_TWO_EPOCHS, optimizer="adam", learning_rate=0.002),
    "milestones": replace(_TWO_EPOCHS, schedule="milestones", milestones=(1,)),
    "warmup": replace(_TWO_EPOCHS, warmup=1.0, weight_decay=0.01, momentum=0.5),
    "clipped": replace(_TWO_EPOCHS, clip_norm=0.1),
    "reweighted": replace(_TWO_EPOCHS, reweighting=1),
    "adamw": replace(_TWO_EPOCHS, optimizer="adamw", learning_rate=0.002, weight_decay=0.05),
    "heavy-ball": replace(_TWO_EPOCHS, optimizer="heavy_ball"),
    "averaged-steps": replace(_TWO_EPOCHS, average=EMA(0.9)),
    "kept": replace(_TWO_EPOCHS, keep=("top1", "top3"), epochs=3, patience=1),
}


@dataclass(frozen=True)
class Case:
    """One trial, or an ensemble of several.

    Args:
        name: Unique.
        trials: What is trained.
        noised: Whether the loss draws noise: another backend draws other numbers, which is no rounding.
        random: Whether images are changed at random, on the device: a GPU draws other numbers.
    """

    name: str
    trials: tuple[Trial, ...] = field(repr=False)
    noised: bool = False
    random: bool = False


def cases(device: str, threads: int = 1) -> list[Case]:
    """Return all cases.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        threads: Torch's.
    """
    arms = dict(_arms())
    result = [
        Case(name, (_trial(arm, device, threads),), _noised(arm), arm.recipe.augmentation != Augmentation())
        for name, arm in arms.items()
    ]
    for loss in ("cross_entropy", "smooth_topk_svm"):
        arm = arms[f"clean/{loss}"]
        members = tuple(_trial(arm, device, threads, seed, (1, 2, 3)) for seed in (1, 2, 3))
        result.append(Case(f"ensemble/{loss}", members))
    return result


def measure(case: Case, backend: Backend) -> dict[str, float]:
    """Train a case; return each epoch's loss and every accuracy, by name, of an ensemble those of its last member.

    Raises:
        RuntimeError: if it did not end as completed.
    """
    with use_backend(backend):
        record = finish(run_trials(case.trials))[-1]
    if record.status != "completed":
        raise RuntimeError(f"{case.name} ended as {record.status}: {record.reason}")
    losses = {f"train_loss.{epoch.epoch}": epoch.train_loss or 0.0 for epoch in record.epochs}
    validation = {f"validation.{name}": record.validation[name] for name in ("top1", "top3")}
    return losses | validation | {f"test.{name}": (record.test or {})[name] for name in ("top1", "top3")}


def _arms() -> Iterator[tuple[str, Arm]]:
    for name in sorted(LOSSES):
        for regime in _REGIMES:
            yield f"{regime.name}/{name}", _arm(regime, Loss(name))
        for fixed in _VARIANTS.get(name, ()):
            values = ",".join(f"{parameter}={value}" for parameter, value in fixed.items())
            yield f"clean/{name}:{values}", _arm(_REGIMES[0], Loss(name, fixed=fixed))
    for name in ("cross_entropy", "smooth_topk_svm", "topk_transition"):
        yield f"ring/{name}", _arm(Regime("ring", "ring"), Loss(name), k=2)
        letters = Regime("letters", "letters", conditions=(PerClass(2),))
        yield f"letters/{name}", _arm(letters, Loss(name), Model("convnet"), Recipe(1, batch_size=62))
    for model in _networks():
        yield f"network/{model.label}", _arm(_IMAGES, Loss("cross_entropy"), model, Recipe(1, batch_size=24))
    yield (
        "network/cosine-head",
        _arm(_REGIMES[0], Loss("cross_entropy", head="cosine", fixed={"temperature": 0.1})),
    )
    for name, recipe in _RECIPES.items():
        yield (
            f"recipe/{name}",
            _arm(_REGIMES[2], Loss("noised_topk_hinge", fixed={"samples": None}), _MLP, recipe),
        )
    yield (
        "recipe/schedule",
        _arm(_REGIMES[0], Loss("smooth_topk_svm", fixed={"tau": Schedule("cosine", 1.0, 0.1)})),
    )
    for mix in ("", "mixup", "cutmix"):
        changed = Augmentation(crop=2, flip=True, cutout=4, mix=mix)
        recipe = Recipe(2, batch_size=24, augmentation=changed)
        yield f"augmented/{mix or 'plain'}", _arm(_IMAGES, Loss("cross_entropy"), Model("convnet"), recipe)


def _networks() -> Iterator[Model]:
    yield Model("linear")
    yield Model("convnet")
    yield Model("densenet", {"depth": 10, "growth": 4})
    yield Model("resnet18_small")


def _arm(regime: Regime, loss: Loss, model: Model = _MLP, recipe: Recipe = _TWO_EPOCHS, k: int = 3) -> Arm:
    return Arm(regime, model, loss, k, recipe)


def _noised(arm: Arm) -> bool:
    return arm.loss.name.startswith("noised") and arm.loss.fixed.get("samples", 1) is not None


def _trial(arm: Arm, device: str, threads: int, seed: int = 1, together: tuple[int, ...] = ()) -> Trial:
    return Trial(
        study="regression",
        arm_id="",
        arm=arm,
        topk=(1, 2, 3),
        phase="confirm",
        number=0,
        seed=seed,
        root=0,
        values={},
        dataset_fingerprint=load(arm.regime).fingerprint,
        code_version="",
        together=together,
        threads=threads,
        device=device,
    )
