"""A study over large datasets for a GPU runs with ``--smoke`` where there are neither; one's own data stay."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
import torch

from topk_platform.testing.standins import write_inaturalist

LAB = """
from topk_platform import Arm, Augmentation, Choice, LabelNoise, Loss, Model, Numerics, PerClass, Recipe, Regime, Study

recipe = Recipe(epochs=90, batch_size=256, accumulate=2, schedule="milestones", milestones=(30, 60),
                augmentation=Augmentation(window=True, flip=True), keep=("top5", "few_top5"))
small = Model("convnet", {"width": 4})
pretrained = Model("torchvision", {"architecture": "mobilenet_v3_small", "weights": "IMAGENET1K_V1"})
batch = Loss("cross_entropy", {"batch_size": Choice((128, 256))}, {"batch_size": 256})


def over(name, dataset, model=small, loss=Loss("cross_entropy"), recipe=recipe, conditions=(), **options):
    return Arm(Regime(name, dataset, conditions, options), model, loss, 5, recipe)


study = Study("large", [
    over("cifar", "cifar100", recipe=Recipe(epochs=300, numerics=Numerics(compiled=True)),
         conditions=(LabelNoise(0.4),), loss=Loss("smooth_topk_svm")),
    over("subset", "imagenet", conditions=(PerClass(64),), loss=batch, validation=50, unreadable="skip"),
    over("tail", "imagenet_lt", recipe=Recipe(epochs=90, test_crops="inclusion"), loss=Loss("ldam")),
    over("plants", "plantnet300k", model=pretrained),
    over("mine", "image_files", recipe=Recipe(epochs=90, batch_size=4), folder="inaturalist", size=16, resize=20),
], trials=50, seeds=10, device="cuda")
"""


def test_a_large_study_needs_nothing_but_seconds(
    lab: Path,
    topk: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TOPK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "no-weights"))
    write_inaturalist(tmp_path / "data", classes=7)
    (lab / "large_lab.py").write_text(LAB)
    done = topk(
        "run", "large_lab:study", "--smoke", "--store", tmp_path / "runs", "--data", tmp_path / "data"
    )
    notice = (
        "Smoke run: small stand-ins of cifar100, imagenet, imagenet_lt, plantnet300k in place of the data"
    )
    if not torch.cuda.is_available():
        notice += ", and the CPU in place of a GPU"
    assert done.stdout.count(f"{notice}.") == 1
    assert "12 trials ran" in done.stdout  # two confirmations of each of five arms, and two searches of one
    rows = ds.dataset(tmp_path / "runs" / "large-smoke" / "trials").to_table().to_pylist()
    assert {row["status"] for row in rows} == {"completed"}
    assert len({row["arm"] for row in rows}) == 5
    # The user's images alone lie in the data folder.
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"inaturalist", ".topk"}
    assert all(name in done.stdout for name in ("cifar", "subset", "tail", "plants", "mine", "± "))


def test_a_paper_s_study_runs_on_stand_ins(
    topk: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = topk(
        "run", "berrada2018_temperature", "--smoke", "--only", "*/tau-0", "--store", tmp_path / "runs"
    )
    assert "2 trials ran" in done.stdout
    assert "published" not in done.stdout
