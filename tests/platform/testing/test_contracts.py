"""Our regimes keep the contract, and the contract catches those that do not."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import pytest
import torch

from topk_platform import LabelNoise, LongTail, Model, Regime, TrainFraction
from topk_platform.data import DATASETS, Dataset, Split, digits
from topk_platform.testing import RegimeContract


class TestBalanced(RegimeContract):
    regime = Regime("balanced", "digits")


class TestNoise(RegimeContract):
    regime = Regime("noise", "digits", (LabelNoise(0.8),))


class TestLongTail(RegimeContract):
    regime = Regime("long-tail", "digits", (LongTail(20), LabelNoise(0.2)))


class TestFraction(RegimeContract):
    regime = Regime("fraction", "digits", (TrainFraction(0.3), LongTail(10)))


class TestRing(RegimeContract):
    regime = Regime("ring", "ring", (LabelNoise(0.1),), {"sigma": 20.0, "distance": 90.0})


@pytest.mark.usefixtures("bytes_convnet")
class TestSynthetic(RegimeContract):
    sizes: ClassVar = {"classes": 10, "superclasses": 2, "train": 20, "validation": 3, "test": 3}
    regime = Regime("images", "synthetic_images", (LabelNoise(0.5), LongTail(4)), sizes)
    model = Model("bytes_convnet")


count = itertools.count()


def shifting() -> Dataset:
    data = digits()
    return dataclasses.replace(data, train=Split(data.train.inputs + next(count), data.train.labels))


def leaking() -> Dataset:
    data = digits()
    return dataclasses.replace(data, test=data.train)


def lacking() -> Dataset:
    data = digits()
    return dataclasses.replace(
        data, validation=data.validation.take(torch.nonzero(data.validation.labels)[:, 0])
    )


def forgetful() -> Dataset:
    return dataclasses.replace(digits(), superclasses=(0,) * 5 + (2,) * 5)


def frozen(generator: torch.Generator) -> Dataset:
    return digits()


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (forgetful, "test_superclasses_partition_the_classes"),
        (frozen, "test_seeds_share_a_dataset_unless_it_is_drawn"),
        (shifting, "test_a_dataset_is_the_same_every_time"),
        (leaking, "test_no_sample_is_in_two_splits"),
        (lacking, "test_every_split_holds_every_class"),
    ],
)
def test_a_broken_dataset_is_caught(monkeypatch: pytest.MonkeyPatch, make: object, test: str) -> None:
    monkeypatch.setitem(DATASETS, make.__name__, make)  # type: ignore[attr-defined]
    broken = type("Broken", (RegimeContract,), {"regime": Regime("r", make.__name__)})()  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        getattr(broken, test)()
