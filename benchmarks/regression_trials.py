"""The small trials of ``regression.py``: every loss, network, dataset, condition and part of a recipe.

Datasets that need files read small ones, which each process writes into a temporary folder.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from topk_losses import use_backend
from topk_platform.data import Dataset, Source, load
from topk_platform.data.datasets.cifar import SUPERCLASSES
from topk_platform.data.folders import data_at
from topk_platform.data.images.backbones import load_backbone
from topk_platform.data.wrong_labels import write_labels
from topk_platform.specs import (
    EMA,
    FEATURES,
    Arm,
    Augmentation,
    Condition,
    ConfusionNoise,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    NoisyLabels,
    Numerics,
    PerClass,
    Recipe,
    Regime,
    Scalar,
    Schedule,
    TrainFraction,
    Trial,
)
from topk_platform.testing import standins
from topk_platform.testing.standins import Painter
from topk_platform.training import finish, run_trials
from topk_platform.training.loss_table import LOSSES

__all__ = ["Backend", "Case", "cases", "measure", "source_of"]

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


_CONDITIONS: Mapping[str, Condition] = {
    "confusion": ConfusionNoise("confusion.csv", 0.8),
    "labels": NoisyLabels("labels.npz"),
}
_CLASSES, _SIDE = 6, 32
_HALVES: dict[str, Scalar] = {"validation": 0.3, "test": 0.3}
_READ: dict[str, Scalar] = {"size": _SIDE, "resize": _SIDE + 4}
_DATA: Mapping[str, tuple[str, dict[str, Scalar]]] = {
    "array_file": ("array_file", {"file": "digits.npz", "groups": "who"}),
    "cifar100": ("cifar100", {}),
    "image_files": ("image_files", {"folder": "photos", **_READ, **_HALVES}),
    "image_folder": ("image_folder", {"folder": "photos", "size": _SIDE, **_HALVES}),
    "imagenet": ("imagenet", {"validation": 20, "classes": _CLASSES, **_READ}),
    "imagenet_lt": ("imagenet_lt", {"classes": _CLASSES, **_READ}),
    "inaturalist": ("inaturalist", {"validation": 0.5, **_READ}),
    "kanji": ("kanji", {"classes": 30}),
    "parquet_images": ("parquet_images", {"files": "photos.parquet", "size": _SIDE, **_HALVES}),
    "plantnet300k": ("plantnet300k", _READ),
}
"""Further datasets by the names of their trials."""


@dataclass(frozen=True)
class Case:
    """One trial, or an ensemble of several.

    Args:
        name: Unique.
        arm: What is trained.
        seeds: One, or those of the members of an ensemble.
    """

    name: str
    arm: Arm
    seeds: tuple[int, ...] = (1,)

    @property
    def noised(self) -> bool:
        """Whether the loss draws noise: another backend draws other numbers, which is no rounding."""
        return self.arm.loss.name.startswith("noised") and self.arm.loss.fixed.get("samples", 1) is not None

    @property
    def random(self) -> bool:
        """Whether images are changed at random, on the device: a GPU draws other numbers."""
        return self.arm.recipe.augmentation != Augmentation()

    @property
    def of_features(self) -> bool:
        """Whether it trains on features: where there is a GPU, that computes them, and rounds them otherwise."""
        return self.arm.regime.dataset == FEATURES


def cases() -> list[Case]:
    """Return all cases."""
    arms = dict(_arms())
    ensembles = [
        Case(f"ensemble/{loss}", arms[f"clean/{loss}"], (1, 2, 3))
        for loss in ("cross_entropy", "smooth_topk_svm")
    ]
    return [*(Case(name, arm) for name, arm in arms.items()), *ensembles]


def measure(case: Case, backend: Backend, device: str = "cpu", threads: int = 1) -> dict[str, float]:
    """Train a case; return each epoch's loss and every accuracy, by name, of an ensemble those of its last member.

    Raises:
        RuntimeError: if it did not end as completed.
    """
    together = case.seeds if len(case.seeds) > 1 else ()
    with _data_of(case.arm.regime), use_backend(backend):
        trials = [_trial(case.arm, device, threads, seed, together) for seed in case.seeds]
        record = finish(run_trials(trials))[-1]
    if record.status != "completed":
        raise RuntimeError(f"{case.name} ended as {record.status}: {record.reason}")
    losses = {f"train_loss.{epoch.epoch}": epoch.train_loss or 0.0 for epoch in record.epochs}
    validation = {f"validation.{name}": record.validation[name] for name in ("top1", "top3")}
    return losses | validation | {f"test.{name}": (record.test or {})[name] for name in ("top1", "top3")}


def source_of(case: Case) -> Source:
    """Return the data of a case before its conditions."""
    with _data_of(case.arm.regime):
        return load(case.arm.regime)


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
    slow = Recipe(1, batch_size=24, learning_rate=0.0001)  # faster, rounding grows by ten thousand in these
    for name in ("densenet121_small", "torchvision"):
        yield f"network/{name}", _arm(_IMAGES, Loss("cross_entropy"), Model(name), slow)
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
    yield from _further_arms()


def _further_arms() -> Iterator[tuple[str, Arm]]:
    loss, network, recipe = Loss("cross_entropy"), Model("convnet", {"width": 8}), Recipe(1, batch_size=24)
    graphs = replace(
        _TWO_EPOCHS, numerics=Numerics(cuda_graphs=True)
    )  # on a CPU, that it changes nothing there
    yield "recipe/cuda-graphs", _arm(_REGIMES[0], loss, recipe=graphs)
    for name, condition in _CONDITIONS.items():
        yield f"condition/{name}", _arm(Regime(name, "digits", (condition,)), loss)
    for name, (dataset, options) in _DATA.items():
        yield f"data/{name}", _arm(Regime(name, dataset, options=options), loss, network, recipe)
    regime = Regime("image_files", "image_files", options=_DATA["image_files"][1])
    crops = replace(recipe, augmentation=Augmentation(window=True), test_crops="softmax")
    yield "data/crops", _arm(regime, loss, network, crops)
    yield (
        "network/feature_head",
        _arm(Regime("ring", "ring"), loss, Model("feature_head", {"layers": 1}), k=2),
    )
    features: dict[str, Scalar] = {
        "of": "image_folder",
        "backbone": f"torchvision/{_BACKBONE}",
        "pixels": _SIDE,
    }
    features |= {"weights": _WEIGHTS, **_DATA["image_folder"][1]}
    yield (
        "data/image_features",
        _arm(Regime("features", FEATURES, options=features), loss, Model("linear"), recipe),
    )


def _networks() -> Iterator[Model]:
    yield Model("linear")
    yield Model("convnet")
    yield Model("densenet", {"depth": 10, "growth": 4})
    yield Model("resnet18_small")
    yield Model("resnet_small")


def _arm(regime: Regime, loss: Loss, model: Model = _MLP, recipe: Recipe = _TWO_EPOCHS, k: int = 3) -> Arm:
    return Arm(regime, model, loss, k, recipe)


def _trial(arm: Arm, device: str, threads: int, seed: int, together: tuple[int, ...]) -> Trial:
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


_BACKBONE, _WEIGHTS = "resnet18", "backbone.pt"


def _write_cifar100(folder: Path) -> None:
    names = sorted(" ".join(SUPERCLASSES.values()).split())
    painter = Painter(len(names), seed=0)
    features = {"fine_label": {"names": names, "_type": "ClassLabel"}}
    (folder / "cifar100").mkdir()
    for split, count in (("train", 5), ("test", 1)):
        labels = [label for label in range(len(names)) for _ in range(count)]
        images = [_png(painter.pixels(label, (32, 32))) for label in labels]
        table = pa.table({"img": images, "fine_label": labels})
        noted = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
        parquet.write_table(table.replace_schema_metadata(noted), folder / "cifar100" / f"{split}.parquet")


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def _write_photos(folder: Path) -> None:
    painter = Painter(_CLASSES, seed=0)
    for label in range(_CLASSES):
        for number in range(60):
            painter.write(folder / "photos" / f"class{label}" / f"{number:02}.png", label, kind="PNG")


def _write_parquet(folder: Path) -> None:
    _write_photos(folder)
    files = sorted((folder / "photos").glob("*/*"))
    images = [{"bytes": file.read_bytes(), "path": None} for file in files]
    table = pa.table({"image": images, "label": [int(file.parent.name[-1]) for file in files]})
    parquet.write_table(table, folder / "photos.parquet")


def _write_arrays(folder: Path) -> None:
    data = load(_REGIMES[0])
    assert isinstance(data, Dataset)
    labels = data.train.labels.numpy()
    np.savez(folder / "digits.npz", x=data.train.tensor.numpy(), y=labels, who=np.arange(len(labels)) // 3)


def _write_features(folder: Path) -> None:
    _write_photos(folder)
    torch.manual_seed(0)
    torch.save(load_backbone(f"torchvision/{_BACKBONE}", _SIDE, None).network.state_dict(), folder / _WEIGHTS)


def _write_confusion(folder: Path) -> None:
    """Write a confusion matrix of the digits: three in four stay, the others become one of the next three."""
    counts = 9 * np.eye(10, dtype=int) + sum(np.roll(np.eye(10, dtype=int), step, 1) for step in (1, 2, 3))
    np.savetxt(folder / "confusion.csv", counts, "%d", ",")


def _write_labels(folder: Path) -> None:
    data = load(_REGIMES[0])
    assert isinstance(data, Dataset)
    labels = [(label + (row % 4 == 0)) % 10 for row, label in enumerate(data.train.labels.tolist())]
    write_labels(folder / "labels.npz", data.train, labels)


_FILES: Mapping[str, Callable[[Path], object]] = {
    "array_file": _write_arrays,
    "cifar100": _write_cifar100,
    "confusion": _write_confusion,
    "features": _write_features,
    "image_files": _write_photos,
    "image_folder": _write_photos,
    "imagenet": partial(standins.write_imagenet, classes=_CLASSES, train=44, test=20),
    "imagenet_lt": partial(standins.write_imagenet_lt, classes=_CLASSES, train=40, validation=20, test=20),
    "inaturalist": partial(standins.write_inaturalist_lists, classes=_CLASSES, train=150, test=20),
    "labels": _write_labels,
    "parquet_images": _write_parquet,
    "plantnet300k": partial(standins.write_plantnet300k, species=_CLASSES, train=40, validation=20, test=20),
}
"""What writes the files of a regime into a data folder, by the regime's name."""


def _data_of(regime: Regime) -> AbstractContextManager[None]:
    return data_at(_written(regime.name) if regime.name in _FILES else None)


@cache
def _written(name: str) -> Path:
    """Return a data folder with the files of a regime, which goes with this process."""
    folder = Path(_folder().name) / name
    folder.mkdir()
    _FILES[name](folder)
    return folder


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="regression-")
