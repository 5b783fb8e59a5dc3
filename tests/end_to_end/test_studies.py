"""Studies of many kinds, run by the command beside one Ray: grown, of one's own, a page's, those for a GPU."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
import torch
from image_archives import write_inaturalist
from labs import rows

from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store

pytestmark = pytest.mark.timeout(3600)

OWN = """
import torch
from torch import nn
from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study


def two_layers(shape, classes, head, width):
    return nn.Sequential(nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, classes))


class Squared(nn.Module):
    def __init__(self, k, class_counts, power=2.0):
        super().__init__()
        self.k, self.power = k, power
        self.register_buffer("share", class_counts / class_counts.sum())

    def forward(self, scores, target, *, generator=None):
        wanted = nn.functional.one_hot(target, scores.shape[1]) - self.share
        noise = 1e-3 * torch.randn(scores.shape, generator=generator)
        return ((scores + noise - wanted).abs() ** self.power).mean()


study = Study(
    "own",
    [Arm(Regime("blobs", "array_file", options={"file": "blobs.npz"}),
         Model("lab_of_ones_own:two_layers", {"width": 12}),
         Loss("lab_of_ones_own:Squared", {"power": Float(1.5, 3)}, {"power": 2.0}), k=2, recipe=Recipe(epochs=15))],
    topk=(1, 2), trials=2, seeds=2, baseline="Squared",
)
"""

LARGE = """
from topk_platform import Arm, Augmentation, Choice, LabelNoise, Loss, Model, PerClass, Recipe, Regime, Study

recipe = Recipe(epochs=90, batch_size=256, schedule="milestones", milestones=(30, 60),
                augmentation=Augmentation(window=True, flip=True), keep=("top5", "few_top5"))
small = Model("convnet", {"width": 4})
pretrained = Model("torchvision", {"architecture": "mobilenet_v3_small", "weights": "IMAGENET1K_V1"})
batch = Loss("cross_entropy", {"batch_size": Choice((128, 256))}, {"batch_size": 256})


def over(name, dataset, model=small, loss=Loss("cross_entropy"), recipe=recipe, conditions=(), **options):
    return Arm(Regime(name, dataset, conditions, options), model, loss, 5, recipe)


study = Study("large", [
    over("cifar", "cifar100", recipe=Recipe(epochs=300),
         conditions=(LabelNoise(0.4),), loss=Loss("smooth_topk_svm")),
    over("subset", "imagenet", conditions=(PerClass(64),), loss=batch, validation=50, unreadable="skip"),
    over("tail", "imagenet_lt", recipe=Recipe(epochs=90, test_crops="inclusion"), loss=Loss("ldam")),
    over("plants", "plantnet300k", model=pretrained),
    over("mine", "image_files", recipe=Recipe(epochs=90, batch_size=4), folder="inaturalist", size=16, resize=20),
], trials=50, seeds=10, device="cuda")
"""


@pytest.mark.slow
def test_grown_on_one_worker_it_holds_what_it_holds_at_once_on_two(
    shared: Any, reference: Any, tmp_path: Path
) -> None:
    """More trials and one more loss only add what is missing."""
    command = ("--store", tmp_path, "--workers", "1")
    shared.topk("run", "my_lab:study", *command, "--trials", "4", "--only", "*/smooth_topk_svm")
    small = started(tmp_path)
    assert len(small) == 4 + 2
    shared.topk("run", "my_lab:wider", *command)
    after = started(tmp_path)
    assert after.items() >= small.items()
    whole = {row["key"]: filled(row) for row in rows(tmp_path, "small")}
    at_once = {row["key"]: filled(row) for row in rows(reference.store, "small")}
    assert {key: whole.get(key) for key in at_once} == at_once
    epochs, of_reference = (rows(store, "small", "epochs") for store in (tmp_path, reference.store))
    assert [row for row in epochs if row["key"] in at_once] == of_reference
    # The added loss, and perhaps confirmations of what was best of four trials.
    extra = [row for key, row in whole.items() if key not in at_once]
    assert Counter(row["loss"] for row in extra)["ldam"] == 6 + 2
    assert all(row["phase"] == "confirm" for row in extra if row["loss"] != "ldam")
    table, _ = shared.topk("table", "my_lab:wider", "--store", tmp_path, "--format", "csv")
    before, _ = shared.topk("table", "my_lab:study", "--store", reference.store, "--format", "csv")
    assert numbers(before) <= numbers(table)


@pytest.mark.slow
def test_a_study_over_ones_own_things(shared: Any, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(6, (600,), generator=generator)
    inputs = 3 * torch.eye(6)[labels] + torch.randn(600, 6, generator=generator)
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "blobs.npz", x=inputs, y=labels)
    (shared.folder / "lab_of_ones_own.py").write_text(OWN)
    command = ("run", "lab_of_ones_own:study", "--workers", "1", "--store", tmp_path, "--data")
    out, _ = shared.topk(*command, tmp_path / "data")
    assert "4 trials ran" in out
    rows = ds.dataset(tmp_path / "own" / "tables" / "trials.parquet").to_table().to_pylist()
    assert {row["status"] for row in rows} == {"completed"}
    assert all(row["test.top2"] > 0.8 for row in rows if row["phase"] == "confirm")
    # Where the data lie is in no key: the same command finds everything done with them elsewhere.
    (tmp_path / "data").rename(tmp_path / "moved")
    out, _ = shared.topk(*command, tmp_path / "moved")
    assert "0 trials ran" in out
    assert not any(str(tmp_path) in row["config"] for row in rows)


@pytest.mark.slow
def test_a_large_study_needs_nothing_but_seconds(shared: Any, tmp_path: Path) -> None:
    write_inaturalist(tmp_path / "data", classes=7)
    (shared.folder / "large_lab.py").write_text(LARGE)
    store = tmp_path / "runs"
    out, _ = shared.topk("run", "large_lab:study", "--smoke", "--store", store, "--data", tmp_path / "data")
    assert out.count("Smoke run: small stand-ins of cifar100, imagenet, imagenet_lt, plantnet300k in") == 1
    assert "12 trials ran" in out  # two confirmations of each of five arms, and two searches of one
    rows = ds.dataset(store / "large-smoke" / "tables" / "trials.parquet").to_table().to_pylist()
    assert {row["status"] for row in rows} == {"completed"}
    assert len({row["arm"] for row in rows}) == 5
    # The user's images alone lie in the data folder.
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"inaturalist", ".topk"}
    assert all(name in out for name in ("cifar", "subset", "tail", "plants", "mine"))
    assert "±" in out


def started(store: Path) -> dict[str, datetime]:
    return {row["key"]: row["started"] for row in Ledger.open(Store.open(store), "small").rows()}


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says; it has a column for every parameter of its study."""
    return {name: value for name, value in row.items() if value is not None}


def numbers(table: str) -> set[tuple[str, ...]]:
    return {tuple(line.split(",")[:6]) for line in table.splitlines()}
