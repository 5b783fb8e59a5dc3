"""Pictures that are drawn from losses and from kept networks: level sets, and decision regions of the ring."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load

from topk_platform import Loss, Model, Recipe, Regime, Study, UserError, grid, plot
from topk_platform.data import ring
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import read_model
from topk_platform.records.storage.store import Store
from topk_platform.reports.plots import NothingToPlotError
from topk_platform.reports.plots.levels import level_sets, simplex, values_on
from topk_platform.reports.plots.regions import densities
from topk_platform.testing import fake_run
from topk_platform.training.loss_table import LOSSES

Array = npt.NDArray[np.float64]
BANDS = 12
MINE = f"{__name__}:mine"


def scaled(values: Array) -> Array:
    return (values - values.min()) / (values.max() - values.min())


def cross_entropy(scores: Array) -> Array:
    return np.log(np.exp(scores).sum(1)) - scores[:, 2]


def calibrated(scores: Array) -> Array:
    """Garcin et al. 2022, Table 1, for three classes and K = 2: the third largest score is the smallest."""
    return np.maximum(0, 1 + scores.min(1) - scores[:, 2])


FORMULAS: dict[str, Callable[[Array], Array]] = {
    "cross_entropy": cross_entropy,
    "calibrated_topk_hinge": calibrated,
}


def band_at(ax: Any, point: Array) -> list[int]:
    """In which of the drawn bands a point of the simplex lies."""
    folder = (point[1] + point[2] / 2, point[2] * math.sqrt(0.75))
    (image,) = ax.collections
    return [number for number, path in enumerate(image.get_paths()) if path.contains_point(folder)]


@pytest.mark.parametrize("name", list(FORMULAS))
def test_level_sets_are_the_losses_own(name: str) -> None:
    """Each point lies in the band of its loss, computed by the paper's formula and scaled to [0, 1]."""
    made = level_sets([Loss(name)])
    points = simplex(40)
    values = scaled(FORMULAS[name](2 * points))
    inside = (points.min(1) > 0) & (np.abs(BANDS * values % 1 - 0.5) < 0.4)
    flat = (values == 0) | (values == 1)
    assert inside.sum() > 100
    for point, value in zip(points[inside & ~flat], values[inside & ~flat], strict=True):
        assert band_at(made.axes[1], point) == [int(BANDS * value)]
    assert band_at(made.axes[1], np.array([0.05, 0.05, 0.9])) == [0]


@pytest.mark.parametrize("name", list(LOSSES))
def test_every_loss_has_level_sets(name: str) -> None:
    """Finite, symmetric in the two other classes, and lowest somewhere on the side of the true one."""
    points = simplex(6)
    values = values_on(Loss(name), {}, 2 * points, 2)
    assert np.isfinite(values).all() and np.ptp(values) > 0
    np.testing.assert_allclose(values, values_on(Loss(name), {}, 2 * points[:, [1, 0, 2]], 2), atol=1e-9)
    assert values[points[:, 2] == 1].item() == pytest.approx(values.min(), abs=1e-9)


class Mine(torch.nn.Module):
    """Knows the mean alone, and five classes at the most."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if scores.shape[1] != self.classes:
            raise RuntimeError(f"{self.classes} classes are wanted")
        return torch.nn.functional.cross_entropy(scores, labels)


def mine(classes: int = 3) -> torch.nn.Module:
    return Mine(classes)


def test_a_loss_of_ones_own_is_drawn_and_one_that_needs_other_classes_says_so() -> None:
    points = 2 * simplex(4)
    np.testing.assert_allclose(values_on(Loss(MINE), {}, points, 2), cross_entropy(points))
    wants = Loss(MINE, fixed={"classes": 5}, label="five")
    made = level_sets([Loss(MINE), wants])
    assert not made.axes[1].texts[0].get_text().startswith("not drawn")
    assert made.axes[2].texts[0].get_text().replace("\n", " ") == "not drawn: 5 classes are wanted"
    with pytest.raises(NothingToPlotError, match="5 classes are wanted"):
        level_sets([wants])
    with pytest.raises(UserError, match="k must"):
        level_sets([Loss("cross_entropy")], k=3)


def test_level_sets_want_no_results_and_are_drawn_once_for_each_value(tmp_path: Path) -> None:
    losses = [
        Loss("smooth_topk_svm", fixed={"tau": 0.1}, label="a"),
        Loss("smooth_topk_svm", fixed={"tau": 0.1, "learning_rate": 1.0}, label="b"),
        Loss("smooth_topk_svm", fixed={"tau": 10.0}, label="c"),
    ]
    study = Study(
        "s", grid([Regime("r", "digits")], [Model("linear")], losses, k=3, recipe=Recipe(1)), topk=(1, 3)
    )
    made = plot(study, "levels", store=tmp_path)
    titles = [ax.get_title(loc="left").replace("\n", ", ") for ax in made.axes[:3]]
    assert titles == ["top-2 error", "smooth topk svm, tau 0.1", "smooth topk svm, tau 10"]
    with pytest.raises(UserError, match="holds nothing of study 's'"):
        plot(study, "map", store=tmp_path)


SEEDS, CLASS = 2, 2
RING = {"sigma": 15, "distance": 90, "per_class": 30}


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, train_study: Callable[[Study, Path], None]
) -> tuple[Study, Path]:
    regimes = [Regime("far", "ring", options=RING)]
    losses = [Loss("cross_entropy"), Loss("topk_grouping")]
    arms = grid(regimes, [Model("linear")], losses, k=2, recipe=Recipe(20, batch_size=16))
    study = Study("s", arms, topk=(1, 2), seeds=SEEDS)
    folder = tmp_path_factory.mktemp("ring")
    train_study(study, folder)
    return study, folder


def weights(study: Study, store: Path, loss: str) -> list[torch.Tensor]:
    """The linear maps of a loss's confirmed runs."""
    opened = Store.open(store)
    rows = Ledger.open(opened, study.name).rows("phase = 'confirm'")
    result = [read_model(opened.at(study.name), row) for row in rows if row["loss"] == loss]
    assert len(result) == SEEDS
    return [next(iter(load(saved.content).values())).double() for saved in result if saved is not None]


def expected(maps: list[torch.Tensor], angle: float) -> dict[int, float]:
    """In which share of the seeds the class is among the k best at an angle."""
    turned = torch.tensor([math.cos(math.radians(angle)), math.sin(math.radians(angle))]).double()
    ranks = [(weight @ turned).argsort(descending=True).tolist().index(CLASS) for weight in maps]
    return {k: sum(rank < k for rank in ranks) / len(maps) for k in (1, 2)}


def test_regions_are_where_the_kept_networks_guess_the_class(trained: tuple[Study, Path]) -> None:
    study, store = trained
    made = plot(study, "regions", store=store)
    (ax,) = made.axes
    bands = [label.get_text().replace(" ", "_") for label in ax.get_yticklabels()]
    assert sorted(bands) == sorted(arm.loss.label for arm in study.arms)
    checked, seen = 0, set()
    for base, loss in enumerate(bands):
        drawn = dict(zip((2, 1), ax.collections[2 * base : 2 * base + 2], strict=True))
        maps = weights(study, store, loss)
        for angle in range(3, 358, 6):
            around = [expected(maps, angle + shift) for shift in (-1, 0, 1)]
            if not around[0] == around[1] == around[2]:
                continue
            for k, share in around[1].items():
                (path,) = drawn[k].get_paths()
                assert path.contains_point((angle, base + 0.75 * share - 0.02)) == (share > 0)
                assert not path.contains_point((angle, base + 0.75 * share + 0.02))
                checked += 1
                seen.add((k, share))
    assert checked > 100 and {(1, 0.0), (1, 1.0), (2, 0.0), (2, 1.0)} <= seen


def test_densities_are_those_of_the_data() -> None:
    """A histogram of many drawn points, in bins of 10 degrees: within five standard errors."""
    many = 60_000
    data = ring(torch.Generator().manual_seed(0), sigma=15.0, distance=90.0, per_class=many).train
    angles = torch.rad2deg(torch.atan2(data.tensor[:, 1], data.tensor[:, 0])).remainder(360).numpy()
    result = densities(Regime("far", "ring", options=RING), np.arange(0.5, 360))
    for label in range(6):
        counts, _ = np.histogram(angles[data.labels.numpy() == label], np.arange(0, 361, 10))
        shares = result[label].reshape(36, 10).sum(1)
        assert np.abs(counts / many - shares).max() < 5 * math.sqrt(0.25 / many)


def test_without_a_ring_or_networks_there_are_no_regions(trained: tuple[Study, Path], tmp_path: Path) -> None:
    study, _ = trained
    arms = grid([Regime("r", "digits")], [Model("linear")], [Loss("focal")], k=2, recipe=Recipe(1))
    other = Study("s", arms, topk=(1, 2))
    fake_run(other, tmp_path / "other", lambda trial: 0.5)
    with pytest.raises(NothingToPlotError, match="no arm on a ring"):
        plot(other, "regions", store=tmp_path / "other")
    fake_run(study, tmp_path / "part", lambda trial: 0.5)
    with pytest.raises(NothingToPlotError, match="has kept its network"):
        plot(study, "regions", store=tmp_path / "part")
