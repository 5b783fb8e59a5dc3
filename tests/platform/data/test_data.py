from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from topk_platform import LabelNoise, LongTail, Regime, TrainFraction, UserError
from topk_platform.data import (
    Dataset,
    Split,
    apply_conditions,
    data_at,
    digits,
    load,
    long_tail_counts,
    noisy_labels,
    shots,
)
from topk_platform.errors import MissingDataError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_digits_are_what_scikit_learn_ships_split_by_its_train_test_split() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    raw, data = load_digits(), digits()
    rest, test = train_test_split(np.arange(1797), test_size=360, stratify=raw.target, random_state=1797)
    parts = train_test_split(rest, test_size=360, stratify=raw.target[rest], random_state=1797)
    for split, chosen in zip((data.train, data.validation, data.test), (*parts, test), strict=True):
        chosen = np.sort(chosen)
        assert isinstance(split.inputs, torch.Tensor) and split.inputs.dtype == torch.float32
        assert np.array_equal(16 * split.inputs.squeeze(1).double().numpy(), raw.images[chosen])
        assert np.array_equal(split.labels.numpy(), raw.target[chosen])
    assert [len(s) for s in (data.train, data.validation, data.test)] == [1077, 360, 360]
    assert data.shape == (1, 8, 8)


@given(probability=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_label_noise_stays_in_the_superclass(probability: float, seed: int) -> None:
    superclasses = torch.tensor([0, 1, 0, 2, 1, 0])
    labels = torch.randint(6, (200,), generator=generator(seed))
    noisy = noisy_labels(labels, superclasses, probability, generator(seed + 1))
    assert torch.equal(superclasses[noisy], superclasses[labels])


def test_superclasses_may_have_any_numbers() -> None:
    labels = torch.arange(4).repeat(50)
    plain, other = (
        noisy_labels(labels, torch.tensor(of), 0.5, generator())
        for of in ([0, 0, 1, 1], [-3, -3, 2**60, 2**60])
    )
    assert torch.equal(plain, other)


def test_label_noise_has_the_stated_distribution() -> None:
    """Of labels replaced with probability p by one of five, 1 - 4p/5 stay; the others are equally likely."""
    n, p = 200_000, 0.4
    labels = torch.full((n,), 7)
    noisy = noisy_labels(labels, torch.tensor([0] * 5 + [1] * 5), p, generator(3))
    counts = torch.bincount(noisy, minlength=10)
    expected = torch.tensor([0.0] * 5 + [p / 5] * 5)
    expected[7] = 1 - 4 * p / 5
    assert counts[:5].sum() == 0
    # One test with a fixed stream; a right sampler fails it for one stream in 10,000.
    assert stats.chisquare(counts[5:].numpy(), (expected[5:] * n).numpy(), sum_check=False).pvalue > 1e-4


def test_conditions_touch_training_alone_and_are_drawn_once_per_seed() -> None:
    data = digits()

    def noisy(seed: int) -> Dataset:
        return apply_conditions(data, [LabelNoise(0.8)], lambda role: generator(seed + len(role)))

    one, again, other = noisy(1), noisy(1), noisy(2)
    assert torch.equal(one.train.labels, again.train.labels)
    assert not torch.equal(one.train.labels, other.train.labels)
    assert torch.equal(one.validation.labels, data.validation.labels)
    assert torch.equal(one.test.labels, data.test.labels)
    assert torch.equal(one.train.inputs, data.train.inputs)


def test_noise_without_superclasses_spans_all_classes() -> None:
    data = dataclasses.replace(digits(), superclasses=None)
    noisy = apply_conditions(data, [LabelNoise(1.0)], lambda role: generator(5))
    crossed = (noisy.train.labels < 5) != (data.train.labels < 5)
    assert 0.4 < crossed.double().mean() < 0.6


def pairs(split: Split) -> set[tuple[bytes, int]]:
    """The samples of a split, each with its label."""
    return set(zip((x.numpy().tobytes() for x in split.tensor), split.labels.tolist(), strict=True))


def test_long_tail_keeps_the_stated_counts_and_true_pairs() -> None:
    data = digits()
    tailed = apply_conditions(data, [LongTail(20)], lambda role: generator(1))
    counts = tailed.class_counts
    smallest = int(data.class_counts.min())
    assert torch.equal(counts, long_tail_counts(data.class_counts, 20))
    assert counts[0] == smallest and counts[9] == round(smallest / 20)
    assert len(tailed.validation) == 360
    assert pairs(tailed.train) <= pairs(data.train)
    assert len(pairs(tailed.train)) == len(tailed.train)


def test_a_long_tail_of_a_class_without_a_sample_is_refused() -> None:
    """The smallest class decides how many samples the largest keeps: all would keep one."""
    data = digits()
    data = data.with_train(data.train.take((data.train.labels != 3).nonzero()[:, 0]))
    with pytest.raises(UserError, match=r"LongTail.*: 3"):
        apply_conditions(data, [LongTail(20)], lambda role: generator(1))


@given(st.lists(st.integers(1, 500), min_size=2, max_size=20), st.floats(1, 1000))
def test_long_tail_counts_fall_and_never_exceed_what_is_there(counts: list[int], ratio: float) -> None:
    wanted = long_tail_counts(torch.tensor(counts), ratio).tolist()
    assert all(1 <= w <= c for w, c in zip(wanted, counts, strict=True))
    assert wanted == sorted(wanted, reverse=True)
    assert math.isclose(wanted[-1], max(1, min(counts) / ratio), abs_tol=0.51)


@given(fraction=st.floats(0.001, 1), seed=st.integers(0, 2**31))
def test_a_fraction_keeps_each_classs_share(fraction: float, seed: int) -> None:
    data = digits()
    cut = apply_conditions(data, [TrainFraction(fraction)], lambda role: generator(seed))
    for kept, whole in zip(cut.class_counts.tolist(), data.class_counts.tolist(), strict=True):
        assert kept == max(1, round(fraction * whole))
    assert torch.equal(cut.validation.labels, data.validation.labels)
    assert torch.equal(cut.test.inputs, data.test.inputs)


def test_a_smaller_fraction_is_part_of_a_larger_one() -> None:
    def cut(fraction: float, seed: int) -> set[tuple[bytes, int]]:
        return pairs(
            apply_conditions(digits(), [TrainFraction(fraction)], lambda role: generator(seed)).train
        )

    assert cut(0.1, 1) < cut(0.5, 1) < cut(1.0, 1)
    assert not cut(0.1, 1) <= cut(0.5, 2)
    assert cut(1.0, 1) == cut(1.0, 2)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.integers(1, 500), st.integers(1, 500))
def test_every_class_is_in_one_group(counts: list[int], one: int, other: int) -> None:
    few, many = sorted((one, other))
    groups = shots(torch.tensor(counts), many=many, few=few)
    for c, n in enumerate(counts):
        expected = "many" if n > many else "few" if n < few else "medium"
        assert [name for name, mask in groups.items() if mask[c]] == [expected]


X, Y = torch.zeros(3, 2), torch.zeros(3).long()


def regime(dataset: str, **options: Any) -> Regime:
    return Regime("r", dataset, options=options)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Split(X, Y.float()), "labels"),
        (lambda: Split(X, Y[:2]), "labels"),
        (lambda: Split(X.numpy(), Y), "inputs"),  # type: ignore[arg-type]
        (lambda: Split(X, [0, 1, 2]), "labels"),  # type: ignore[arg-type]
        (lambda: Split(X.double(), Y), "inputs"),
        (lambda: Split(torch.zeros(3, 5, 5, 1).byte(), Y), "permute"),
        (lambda: Split(torch.zeros(3, 5, 5).byte(), Y), "inputs"),
        (lambda: dataclasses.replace(digits(), classes=9), "labels"),
        (lambda: dataclasses.replace(digits(), superclasses=("a",) * 10), "superclasses"),  # type: ignore[arg-type]
        (lambda: dataclasses.replace(digits(), superclasses=(0, 1)), "superclasses"),
        (lambda: dataclasses.replace(digits(), names=("a",) * 10), "names must be a text per class"),
        (lambda: dataclasses.replace(digits(), names=("a", "b")), r"\(10\), each once, got 2"),
        (lambda: dataclasses.replace(digits(), names=tuple(range(10))), "names"),  # type: ignore[arg-type]
        (lambda: digits().with_train(Split(torch.zeros(9, 64), torch.arange(9))), "inputs"),
        (lambda: shots(torch.tensor([1]), many=10, few=12), "few"),
        (lambda: load(regime("digitz")), "'digits'"),
        (lambda: load(regime("digits", size=3)), "size"),
        (lambda: load(regime("math:floor", x=3)), "math:floor"),
        (lambda: load(regime("builtins:list")), "builtins:list"),
        (lambda: load(regime("builtins:open", file="/no/such/file")), "builtins:open"),
        (lambda: load(regime("no_such_module:x")), "no_such_module"),
        (lambda: load(regime("math:flor")), "'floor'"),
    ],
)
def test_bad_data_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises((UserError, ValueError), match=name):
        make()


@pytest.mark.parametrize(("shape", "expected"), [((64,), 4096), ((3, 32, 32), 341), ((3, 1024, 1024), 1)])
def test_large_samples_are_scored_few_at_once(shape: tuple[int, ...], expected: int) -> None:
    split = Split(torch.empty((5000, *shape), device="meta"), torch.zeros(5000, dtype=torch.int64))
    assert split.at_once == expected
    small = Split(torch.arange(10.0).view(5, 2), torch.zeros(5, dtype=torch.int64))
    assert [part.tolist() for part in small.in_order(4)] == [[[0, 1], [2, 3], [4, 5], [6, 7]], [[8, 9]]]
    assert torch.equal(torch.cat(list(small.in_order())), small.tensor)


@pytest.mark.parametrize(
    ("error", "kind", "named"),
    [
        (
            lambda folder: (folder / "x.npy").read_text(),
            MissingDataError,
            "there is no .*x.npy: put it there",
        ),
        (lambda folder: (folder.parent / "tool").read_text(), UserError, "cannot be read: .*tool"),
        (lambda folder: raised(FileNotFoundError("no birds")), UserError, "cannot be read: no birds"),
    ],
)
def test_only_a_file_of_the_data_folder_is_missing_data(
    error: Any, kind: type[UserError], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "birds", SimpleNamespace(load=lambda: error(tmp_path / "data")))
    with data_at(tmp_path / "data"), pytest.raises(UserError, match=named) as caught:
        load(Regime("r", "birds:load"))
    assert type(caught.value) is kind


def raised(error: Exception) -> None:
    raise error
