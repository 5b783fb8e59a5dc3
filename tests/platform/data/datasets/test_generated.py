"""Points around a circle, and made-up images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from topk_platform import Regime, UserError
from topk_platform.data import Population, Split, apply_conditions, load, ring, synthetic_images


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def deviations(split: Split, classes: int) -> np.ndarray:
    """Angles from the own class's centre, in degrees in (-180, 180]."""
    angle = np.degrees(np.arctan2(split.inputs[:, 1].double().numpy(), split.inputs[:, 0].double().numpy()))
    return (angle - split.labels.numpy() * 360 / classes + 180) % 360 - 180


def test_points_lie_on_the_unit_circle_as_many_of_each_class() -> None:
    data = ring(generator(), sigma=20)
    for split in data.splits.values():
        assert split.inputs.shape == (1800, 2) and split.inputs.dtype == torch.float32
        assert torch.allclose(split.inputs.norm(dim=1), torch.ones(1800), atol=1e-6)
        assert torch.bincount(split.labels).tolist() == [300] * 6


@pytest.mark.parametrize("sigma", [10.0, 30.0])
def test_angles_are_normal_around_six_centres(sigma: float) -> None:
    """Kolmogorov-Smirnov on 1,800 points; a right sampler fails one fixed stream in 10,000.

    At 30° a point is more than 180° off, and so wrapped, with a probability of 2e-9.
    """
    for split in ring(generator(1), sigma=sigma).splits.values():
        assert stats.kstest(deviations(split, 6), stats.norm(scale=sigma).cdf).pvalue > 1e-4


def test_one_point_in_three_is_in_the_minor_mode() -> None:
    """With σ = 1° and modes 90° apart, which mode a point is in can be read off: 44 deviations lie between."""
    for split in ring(generator(2), sigma=1, distance=90).splits.values():
        off = deviations(split, 6)
        minor = off > 45
        assert [int(minor[split.labels.numpy() == c].sum()) for c in range(6)] == [100] * 6
        assert stats.kstest(off[minor] - 90, stats.norm().cdf).pvalue > 1e-4
        assert stats.kstest(off[~minor], stats.norm().cdf).pvalue > 1e-4


def test_the_best_possible_accuracies_at_90_degrees_are_those_of_the_density() -> None:
    """Bayes' top-1 and top-2 accuracy by integrating the mixture against its rate on 30,000 drawn points.

    Five standard errors of a share of 30,000 are 1.5 %.
    """
    sigma, grid = 10.0, np.linspace(-180, 180, 36_001)[:-1]

    def density(angle: np.ndarray) -> np.ndarray:
        away = (angle[None] - 60 * np.arange(6)[:, None] + 180) % 360 - 180
        minor = (away - 90 + 180) % 360 - 180
        return (2 * stats.norm.pdf(away / sigma) + stats.norm.pdf(minor / sigma)) / (3 * sigma) / 6

    best = np.sort(density(grid), axis=0)[::-1]
    split = ring(generator(3), sigma=sigma, distance=90, per_class=5000).test
    angle = deviations(split, 6) + 60 * split.labels.numpy()
    order = np.argsort(-density(angle), axis=0)
    for k in (1, 2):
        expected = best[:k].sum(0).mean() * 360
        result = (order[:k] == split.labels.numpy()).any(0).mean()
        assert abs(result - expected) < 0.015


def test_every_seed_has_its_own_points_and_keeps_them() -> None:
    rings = load(Regime("r", "ring", options={"sigma": 20.0}))
    assert isinstance(rings, Population)
    one, again, other = (
        apply_conditions(rings, (), lambda role, seed=seed: generator(seed)) for seed in (1, 1, 2)
    )
    assert one.fingerprint == again.fingerprint != other.fingerprint
    inputs = [split.inputs for split in one.splits.values()]
    assert not torch.equal(inputs[0], inputs[1]) and not torch.equal(inputs[1], inputs[2])


def test_the_fingerprint_is_the_definitions() -> None:
    def fingerprint(**options: float) -> str:
        return load(Regime("r", "ring", options=options)).fingerprint

    assert fingerprint(sigma=20.0, distance=90.0) == fingerprint(distance=90.0, sigma=20.0)
    assert len({fingerprint(), fingerprint(sigma=20.0), fingerprint(distance=20.0)}) == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": math.nan}, r"options\['sigma'\]"),
        ({"distance": math.inf}, r"options\['distance'\]"),
        ({"per_class": 0}, "per_class"),
        ({"classes": 0}, "classes"),
        ({"sigmas": 1.0}, "'sigma'"),
        ({"generator": 3}, "generator"),
    ],
)
def test_bad_options_of_the_ring_are_refused(options: dict[str, float], named: str) -> None:
    with pytest.raises(UserError, match=named):
        _ = load(Regime("r", "ring", options=options)).classes


SMALL = {"classes": 12, "superclasses": 3, "train": 6, "validation": 2, "test": 3}


def test_sizes_classes_and_splits_are_those_asked_for() -> None:
    data = synthetic_images(**SMALL, size=16)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [72, 24, 36]
    assert data.shape == (3, 16, 16) and data.train.inputs.dtype == torch.uint8
    assert data.class_counts.tolist() == [6] * 12
    assert data.superclasses == (0, 1, 2) * 4


def test_the_bytes_are_the_same_on_every_machine() -> None:
    """A change of the generator changes every key: it must be seen. Only integers are computed with."""
    assert synthetic_images(**SMALL).fingerprint == "dd3d6aea78aa27a9eef1"
    assert synthetic_images(**SMALL, seed=1).fingerprint != synthetic_images(**SMALL).fingerprint


def test_the_other_sizes_do_not_change_a_split() -> None:
    more = synthetic_images(**{**SMALL, "train": 9, "validation": 1})
    assert torch.equal(more.test.inputs, synthetic_images(**SMALL).test.inputs)


def rates(difficulty: float) -> tuple[float, float]:
    """Return the shares of test images put into the right class, and superclass, by the nearest mean image.

    Means are over shifts and mirrors: less than a convolutional network sees, and enough to tell more from less.
    """
    data = synthetic_images(
        classes=8, superclasses=2, train=100, validation=1, test=50, difficulty=difficulty
    )
    train, test = (split.inputs.double().flatten(1) / 255 for split in (data.train, data.test))
    means = torch.stack([train[data.train.labels == c].mean(0) for c in range(8)])
    result = torch.cdist(test, means).argmin(1)
    groups = torch.tensor(data.superclasses)
    right, grouped = result == data.test.labels, groups[result] == groups[data.test.labels]
    return right.double().mean().item(), grouped.double().mean().item()


def test_difficulty_takes_the_classes_apart_and_together() -> None:
    """Of 400 images; by chance 1/8 and 1/2 are right. Bounds are those of a binomial at 1 - 1e-6."""
    easy, hard, hopeless = rates(0.0), rates(0.7), rates(1.0)
    chance = [stats.binom.ppf(1 - 1e-6, 400, p) / 400 for p in (1 / 8, 1 / 2)]
    assert easy[0] > hard[0] > chance[0] > hopeless[0]
    assert easy[1] >= hard[1] > chance[1] > hopeless[1]
    # Mistakes stay in the superclass more often than the 3/7 of a blind one.
    assert (hard[1] - hard[0]) / (1 - hard[0]) > 0.5


@pytest.mark.parametrize("options", [{"superclasses": 101}, {"size": 30}, {"difficulty": 1.5}, {"test": 0}])
def test_bad_options_of_made_up_images_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} must be"):
        load(Regime("r", "synthetic_images", options=options))
