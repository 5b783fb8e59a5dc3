"""The plot of what shares the K guesses with the true class: its numbers are those of the kept guesses."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from topk_platform import Loss, Model, Recipe, Regime, Study, grid, plot
from topk_platform.records import files
from topk_platform.records.files import artifact_name
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_guesses, read_ranks, save_guesses, save_ranks
from topk_platform.records.rows import Row
from topk_platform.records.run_notes import DataNote, Samples, note_data
from topk_platform.records.storage.store import Store
from topk_platform.reports.plots import NothingToPlotError
from topk_platform.reports.plots.confusion import _named, groups_of, sharing
from topk_platform.reports.plots.drawing import figure
from topk_platform.reports.plots.pictures import tile
from topk_platform.specs import Trial
from topk_platform.testing import fake_run

K, SEEDS = 3, 2


def a_study() -> Study:
    losses = [Loss("cross_entropy"), Loss("focal")]
    arms = grid([Regime("r", "digits")], [Model("linear")], losses, k=K, recipe=Recipe(2))
    return Study("s", arms, topk=(1, K), seeds=SEEDS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, train_study: Callable[[Study, Path], None]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_study(a_study(), folder)
    return folder


@pytest.fixture
def store(tmp_path: Path, trained: Path) -> Path:
    """A copy, for some tests write other guesses into it."""
    return Path(shutil.copytree(trained, tmp_path, dirs_exist_ok=True))


def rows(store: Path, loss: str) -> list[Row]:
    result = Ledger.open(Store.open(store), "s").rows("phase = 'confirm'")
    return [row for row in result if row["loss"] == loss]


def trials(store: Path, loss: str) -> list[Trial]:
    return [Trial.from_json(row["config"]) for row in rows(store, loss)]


def test_shares_are_those_of_the_kept_guesses(store: Path) -> None:
    made = plot(a_study(), "confusion", store=store)
    assert made.get_suptitle() == "r"
    folder = Store.open(store).at("s")
    for ax, loss in zip(made.axes, ("cross_entropy", "focal"), strict=False):
        title = ax.get_title("left").replace("\n", " ")
        assert title == f"linear/{loss} K = {K}, n = {SEEDS} seeds".replace("_", " ")
        names = [label.get_text() for label in ax.get_yticklabels()]
        assert sorted(names) == [str(digit) for digit in range(10)]
        drawn = np.asarray(ax.images[0].get_array())
        assert drawn.sum(1) == pytest.approx(K)
        runs = [(read_ranks(folder, row), read_guesses(folder, row)) for row in rows(store, loss)]
        for (y, true), (x, guess) in itertools.product(enumerate(map(int, names)), repeat=2):
            result = []
            for ranks, guesses in runs:
                assert ranks is not None and guesses is not None
                of_class = guesses.classes[ranks.label == true]
                result.append((of_class == guess).any(1).mean())
            assert drawn[y, x] == pytest.approx(np.mean(result))


def keep_pairs(store: Path, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep guesses in which twenty pairs of classes are guessed for one another, and all else at random."""
    folder, draw = Store.open(store).at("s"), np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 10)
    guesses = np.stack([draw.permutation(classes)[:K] for _ in labels])
    guesses[:, 0] = labels
    pairs = labels < 40
    guesses[pairs, 1] = labels[pairs] ^ 1
    recorded, sums = files._recorded, {}
    # The files are others than were recorded.
    monkeypatch.setattr(files, "_recorded", lambda at, row: sums.get(row["key"]) or recorded(at, row))
    for trial in trials(store, "cross_entropy"):
        zero = np.zeros_like(labels)
        ranks = torch.from_numpy(np.stack([zero, zero, labels, zero]))
        sums[trial.key] = {
            "ranks": save_ranks(folder, trial, ranks, "made up"),
            "guesses": save_guesses(folder, trial, torch.from_numpy(guesses), "made up"),
        }
        folder.delete(artifact_name("network", trial.key))


def test_of_two_hundred_classes_those_are_drawn_that_are_alike(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_pairs(store, 200, monkeypatch)
    made = plot(a_study(), "confusion", store=store)
    (ax, _) = made.axes
    names = [int(label.get_text()) for label in ax.get_yticklabels()]
    assert len(names) == 64 and set(range(40)) <= set(names) and "64 of 200 classes" in ax.get_title("left")
    framed = {int(patch.get_y() + 0.5) for patch in ax.patches if patch.get_height() == 2}
    assert framed >= {min(names.index(c), names.index(c ^ 1)) for c in range(40)}


def test_of_a_thousand_classes_the_worst_pairs_are_drawn(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pictures, for the images that the ranks belong to are on no machine."""
    keep_pairs(store, 1000, monkeypatch)
    made = plot(a_study(), "confusion", store=store)
    (ax,) = made.axes
    assert "1000 classes" in made.get_suptitle() and not ax.images
    texts = [text.get_text() for text in ax.texts]
    pairs = [tuple(texts[start : start + 3]) for start in range(0, len(texts), 3)]
    assert {pair[:2] for pair in pairs[:20]} == {(str(c), str(c + 1)) for c in range(0, 40, 2)}
    assert len(pairs) == 100 and all(pair[2] == "100 %, 100 %" for pair in pairs[:20])


def test_without_guesses_there_is_no_plot(store: Path) -> None:
    for trial in trials(store, "cross_entropy") + trials(store, "focal"):
        Store.open(store).at("s").delete(artifact_name("guesses", trial.key))
    with pytest.raises(NothingToPlotError, match="has kept its guesses"):
        plot(a_study(), "confusion", store=store)


def without_networks(store: Path) -> None:
    """Write a study's records in which the second arm never guesses class 3, which has no test image."""

    def guesses(trial: Trial) -> torch.Tensor:
        last = 3 if trial.arm.loss.name == "cross_entropy" else 0
        return torch.tensor([[0, 1, last or 2], [1, 2, last]])

    zero, label = torch.zeros(2, dtype=torch.long), torch.tensor([0, 1])
    fake_run(
        a_study(),
        store,
        lambda _: 0.5,
        ranks=lambda _: torch.stack([zero, zero, label, zero]),
        guesses=guesses,
    )


def class_axes(store: Path) -> list[list[str]]:
    made = plot(a_study(), "confusion", store=store)
    return [[name.get_text() for name in ax.get_yticklabels()] for ax in made.axes if ax.images]


def test_without_networks_all_classes_have_the_names_that_the_runs_noted(tmp_path: Path) -> None:
    without_networks(tmp_path)
    first, second = class_axes(tmp_path)
    assert (
        sorted(first) == ["0", "1", "2", "3"] and second == first
    )  # though one of them never guessed class 3
    note = DataNote("of", Samples("r", 9, 9, 2, 5, 3, 3), tuple("abcde"))
    note_data(Store.open(tmp_path).at("s"), {"r": note})
    assert [sorted(names) for names in class_axes(tmp_path)] == [list("abcde")] * 2
    note_data(Store.open(tmp_path).at("s"), {"r": dataclasses.replace(note, names=())})
    assert [sorted(names) for names in class_axes(tmp_path)] == [list("01234")] * 2


def test_names_with_dollar_signs_are_no_formulas() -> None:
    made = figure(3, 3)
    ax = made.subplots()
    _named(ax, ["$_$", "US$"])
    tile(ax, None, 0, 0, "$ $")
    FigureCanvasAgg(made).draw()


@given(st.integers(2, 6), st.integers(1, 30), st.integers(0, 2**16))
def test_rows_sum_to_k_and_the_diagonal_is_the_accuracy(classes: int, images: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    k = int(draw.integers(1, classes + 1))
    labels = draw.integers(0, classes, images)
    guesses = np.stack([draw.permutation(classes)[:k] for _ in labels])
    result = sharing(labels, guesses, classes).toarray()
    for label in range(classes):
        own = labels == label
        assert result[label].sum() == pytest.approx(k if own.any() else 0)
        if own.any():
            assert result[label, label] == pytest.approx((guesses[own] == label).any(1).mean())
    groups = groups_of(result)
    assert sorted(label for group in groups for label in group) == list(range(classes))
