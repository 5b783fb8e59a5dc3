"""The plot of test images: the right images, names and frames, and what it needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import offer
from made_studies import small_study
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from trained_studies import train_study

from topk_platform import Recipe, Regime, Study, plot
from topk_platform.data import Dataset, Split, from_tensors, load
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_guesses, read_ranks
from topk_platform.records.storage.store import Store
from topk_platform.reports.plots import NothingToPlotError
from topk_platform.reports.plots.drawing import figure
from topk_platform.reports.plots.pictures import tile
from topk_platform.testing import fake_run

K = 3


def a_study(dataset: str = "digits") -> Study:
    how = {"models": ["linear"], "k": K, "recipe": Recipe(2), "seeds": 1}
    return small_study("cross_entropy", "focal", regimes=[Regime("r", dataset)], **how)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guesses")
    train_study(a_study(), folder)
    return folder


def rows(ax: Axes) -> list[list[str]]:
    """The names below the images, from top to bottom and from left to right."""
    texts = sorted(ax.texts, key=lambda text: (text.get_position()[1], text.get_position()[0]))
    return [
        [text.get_text() for text in texts[start : start + 1 + K]] for start in range(0, len(texts), 1 + K)
    ]


def test_every_row_is_a_test_image_with_its_guesses(store: Path) -> None:
    made = plot(a_study(), "guesses", store=store, only="*/focal")
    folder = Store.open(store).at("s")
    (row,) = Ledger.open(Store.open(store), "s").rows("loss = 'focal'")
    ranks, guesses = read_ranks(folder, row), read_guesses(folder, row)
    digits = load(a_study().arms[0].regime)
    assert ranks is not None and guesses is not None and isinstance(digits, Dataset)
    hits = guesses.classes == ranks.label[:, None]
    kinds = (hits[:, 0], hits.any(1) & ~hits[:, 0], ~hits.any(1))
    titles = [ax.get_title("left") for ax in made.axes]
    shares = [f"{100 * kind.mean():.1f} %" for kind in kinds if kind.any()]
    assert [title.rpartition(": ")[2] for title in titles] == shares
    for ax, kind in zip(made.axes, filter(np.any, kinds), strict=True):
        for names, image in zip(rows(ax), ax.images[:: 1 + K], strict=True):
            drawn = np.asarray(image.get_array(), float)[::6, ::6]
            pixels = digits.test.tensor[:, 0].double().numpy()
            pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min())
            (result, *_) = [i for i in np.flatnonzero(kind) if np.abs(pixels[i] - drawn).max() < 0.2]
            assert [int(name) for name in names] == [ranks.label[result], *guesses.classes[result]]
        framed = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        assert len(framed) == (0 if titles[made.axes.index(ax)].startswith("lost") else len(rows(ax)))


def test_other_images_than_those_of_the_runs_are_not_drawn(tmp_path: Path) -> None:
    fake_run(a_study(), tmp_path, lambda _: 0.5)
    with pytest.raises(NothingToPlotError, match="not those that the runs were tested on"):
        plot(a_study(), "guesses", store=tmp_path)


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    fake_run(a_study("cifar100"), tmp_path / "runs", lambda _: 0.5)
    with pytest.raises(NothingToPlotError, match=r"the test images cannot be read on this machine: .*cifar"):
        plot(a_study("cifar100"), "guesses", store=tmp_path / "runs")
    with pytest.raises(NothingToPlotError, match="my photos"):
        plot(a_study("cifar100"), "guesses", store=tmp_path / "runs", data=tmp_path / "my photos")
    assert os.environ["TOPK_DATA"] == str(tmp_path)


@pytest.mark.parametrize(
    ("dataset", "message"), [("ring", "every seed draws"), ("own_numbers:numbers", "are not images")]
)
def test_there_are_no_images_of_what_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, message: str
) -> None:
    offer(monkeypatch, "own_numbers", numbers=numbers)
    study = a_study(dataset)
    fake_run(study, tmp_path / "runs", lambda _: 0.5)
    with pytest.raises(NothingToPlotError, match=message):
        plot(study, "guesses", store=tmp_path / "runs")


def numbers() -> Dataset:
    """Five numbers for each sample."""
    split = Split(torch.arange(50.0).reshape(10, 5), torch.arange(10))
    return Dataset(split, split, split, 10)


def photos() -> Dataset:
    """Small colour images of four classes, of which each has its own brightness."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 4
    noise = torch.randint(0, 50, (60, 3, 6, 6), generator=generator)
    return from_tensors(((noise + 50 * labels[:, None, None, None]).to(torch.uint8), labels))


def means() -> torch.nn.Module:
    """A backbone: the mean of each colour."""
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


def test_of_features_their_images_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "own_photos", photos=photos, means=means)
    monkeypatch.setenv("TOPK_CACHE", str(tmp_path / "cache"))
    options = {"of": "own_photos:photos", "backbone": "own_photos:means", "pixels": 6}
    regime = Regime("r", "image_features", options=options)
    study = small_study(regimes=[regime], models=["linear"], k=2, recipe=Recipe(2), seeds=1)
    train_study(study, tmp_path / "runs")
    pixels = photos().test.tensor.permute(0, 2, 3, 1).double().numpy() / 255
    made = plot(study, "guesses", store=tmp_path / "runs")
    drawn = [np.asarray(image.get_array(), float) for ax in made.axes for image in ax.images]
    assert drawn and all(image.shape == (48, 48, 3) for image in drawn)
    assert all(np.abs(pixels - image[::8, ::8]).max((1, 2, 3)).min() < 1e-6 for image in drawn)


def test_names_with_dollar_signs_are_no_formulas() -> None:
    made = figure(3, 3)
    tile(made.subplots(), None, 0, 0, "$ $")
    FigureCanvasAgg(made).draw()
