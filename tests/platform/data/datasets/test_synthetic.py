"""Made-up images: the same bytes everywhere, and as hard as they are asked to be."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from topk_platform import Regime, UserError
from topk_platform.data import load, synthetic_images

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


def test_images_are_moved() -> None:
    """Cells are four pixels wide: where the strongest edges lie, modulo four, is the image's shift."""
    data = synthetic_images(classes=1, superclasses=1, train=300, validation=1, test=1, difficulty=0.0)
    grey = data.train.inputs.double().mean(1)
    edges = (grey[:, :, 1:] - grey[:, :, :-1]).abs().mean(1).argmax(1) % 4
    assert len(edges.unique()) == 4


@pytest.mark.parametrize("options", [{"superclasses": 101}, {"size": 30}, {"difficulty": 1.5}, {"test": 0}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} must be"):
        load(Regime("r", "synthetic_images", options=options))
