"""Data, model and loss of a user's own, from the folder the command runs in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import torch
from PIL import Image

LAB = '''
import torch
from torch import nn
from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study
from topk_platform.data import Dataset, Split


def blobs(path, classes=6):
    """Reads a file by its relative path, as people do."""
    inputs, labels = torch.load(path, weights_only=True)
    return Dataset(*(Split(inputs[i::3], labels[i::3]) for i in range(3)), classes=classes)


def two_layers(shape, classes, head, width):
    return nn.Sequential(nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, classes))


def pixels(shape, classes, head):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


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
    [Arm(Regime("blobs", "lab_of_ones_own:blobs", options={"path": "blobs.pt"}),
         Model("lab_of_ones_own:two_layers", {"width": 12}),
         Loss("lab_of_ones_own:Squared", {"power": Float(1.5, 3)}, {"power": 2.0}), k=2, recipe=Recipe(epochs=15)),
     Arm(Regime("pictures", "image_folder", options={"folder": "pictures", "size": 8}), Model("lab_of_ones_own:pixels"),
         Loss("lab_of_ones_own:Squared"), k=2, recipe=Recipe(epochs=15, learning_rate=0.01))],
    topk=(1, 2), trials=2, seeds=2, baseline="Squared",
)
'''


def test_a_study_over_ones_own_things(
    lab: Path, topk: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(6, (600,), generator=generator)
    inputs = 3 * torch.eye(6)[labels] + torch.randn(600, 6, generator=generator)
    torch.save((inputs, labels), lab / "blobs.pt")
    for name, colour in (("red", 0), ("green", 1), ("blue", 2)):
        (tmp_path / "data" / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            picture = np.zeros((9, 11, 3), dtype=np.uint8)
            picture[..., colour] = 150 + number
            Image.fromarray(picture).save(tmp_path / "data" / "pictures" / name / f"{number}.png")
    (lab / "lab_of_ones_own.py").write_text(LAB)
    done = topk("run", "lab_of_ones_own:study", "--store", tmp_path, "--data", tmp_path / "data")
    assert "6 trials ran" in done.stdout  # the second arm has nothing to search
    rows = ds.dataset(tmp_path / "own" / "trials").to_table().to_pylist()
    assert {row["arm"] for row in rows} == {"blobs/two_layers/Squared", "pictures/pixels/Squared"}
    assert {row["status"] for row in rows} == {"completed"}
    assert all(row["test.top2"] > 0.8 for row in rows if row["phase"] == "confirm")
    # Where the data lie is in no key: the same command finds everything done with them elsewhere.
    (tmp_path / "data").rename(tmp_path / "moved")
    again = topk("run", "lab_of_ones_own:study", "--store", tmp_path, "--data", tmp_path / "moved")
    assert "0 trials ran" in again.stdout
    assert not any(str(tmp_path) in row["config"] for row in rows)
