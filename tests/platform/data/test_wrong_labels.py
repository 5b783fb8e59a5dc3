"""Wrong labels have the distribution that their papers state, and what a file says is what is trained on."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from topk_platform import (
    ConfusionNoise,
    LabelNoise,
    NoisyLabels,
    PerClass,
    Regime,
    UserError,
)
from topk_platform.data import Dataset, Split, apply_conditions, digits, load, write_labels
from topk_platform.data.conditions import conditioned as noted
from topk_platform.data.wrong_labels import confused_labels
from topk_platform.errors import MissingDataError
from topk_platform.specs import Condition


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def conditioned(data: Dataset, *conditions: Condition, seed: int = 0) -> Dataset:
    return apply_conditions(data, conditions, lambda role: generator(seed + len(role)))


def test_confused_labels_have_the_distribution_of_their_row() -> None:
    matrix = np.array([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5]])
    labels = torch.arange(3).repeat(100_000)
    for probability in (1.0, 0.25):
        noisy = confused_labels(labels, torch.from_numpy(matrix), probability, generator(2))
        rows = (1 - probability) * np.eye(3) + probability * matrix
        for label in range(3):
            counts = np.bincount(noisy[labels == label].numpy(), minlength=3)
            possible = rows[label] > 0
            assert counts[~possible].sum() == 0
            assert stats.chisquare(counts[possible], rows[label][possible] * counts.sum()).pvalue > 1e-4


NAMED = "true,b,a,c\nb,8,1,1\na,2,6,2\nc,0,0,5\n"
PLAIN = "0.6,0.2,0.2\n0.1,0.8,0.1\n0,0,1\n"


@pytest.mark.parametrize("text", [NAMED, PLAIN], ids=["named", "in order"])
def test_a_confusion_matrix_is_read_by_name_or_in_order(text: str, data_path: Path) -> None:
    (data_path / "human.csv").write_text(text)
    labels = torch.tensor([0, 1, 2]).repeat(30_000)
    small = three_classes(labels)
    noisy = conditioned(small, ConfusionNoise("human.csv")).train.labels
    expected = np.array([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]])
    for label in range(3):
        shares = np.bincount(noisy[labels == label].numpy(), minlength=3) / 30_000
        assert np.allclose(shares, expected[label], atol=0.012)  # four standard errors of a share of 0.5


def three_classes(labels: torch.Tensor) -> Dataset:
    data = digits()
    few = data.train.take(torch.arange(len(labels)) % len(data.train)).relabelled(labels)
    held_out = data.test.take(torch.arange(3)).relabelled(torch.arange(3))
    return Dataset(few, held_out, held_out, 3, names=("a", "b", "c"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "1,2\n3,4\n", "1,2,3\n3,4\n1,1,1\n"),
        *(f"1,2,3\n{row}\n1,1,1\n" for row in ("3,-4,5", "3,inf,-5", "3,nan,5", "3,x,5", "0,0,0")),
        "0.5,0.5,0\n0.2,0.2,0.2\n0,0,1\n",
        "t,a,b,d\na,1,0,0\nb,0,1,0\nd,0,0,1\n",
        "t,a,b,c\na,1,0,0\nc,0,1,0\nb,0,0,1\n",
    ],
)
def test_a_wrong_matrix_is_refused(text: str, data_path: Path) -> None:
    (data_path / "human.csv").write_text(text)
    with pytest.raises(UserError, match=r"human\.csv(: rows and columns)? must"):
        conditioned(three_classes(torch.arange(3)), ConfusionNoise("human.csv"))


def test_names_need_names(data_path: Path) -> None:
    (data_path / "human.csv").write_text(NAMED)
    nameless = dataclasses.replace(three_classes(torch.arange(3)), names=None)
    with pytest.raises(UserError, match=r"human\.csv names its classes"):
        conditioned(nameless, ConfusionNoise("human.csv"))


@pytest.mark.parametrize("condition", [ConfusionNoise("none.csv"), NoisyLabels("none.npz")])
def test_a_missing_file_is_missing_data(condition: Condition, data_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"none\.(csv|npz)"):
        conditioned(digits(), condition)


def test_a_files_labels_find_their_samples_in_any_order(data_path: Path) -> None:
    data = digits()
    shuffled = torch.randperm(len(data.train), generator=generator(3))[:500]
    given = (data.train.labels[shuffled] + 1) % 10
    write_labels(data_path / "labels.npz", data.train.take(shuffled), given.tolist())
    noisy = conditioned(data, NoisyLabels("labels.npz")).train.labels
    expected = data.train.labels.clone()
    expected[shuffled] = given
    assert torch.equal(noisy, expected)
    thinned = conditioned(data, PerClass(20), NoisyLabels("labels.npz"))
    assert 0 < (thinned.train.labels != conditioned(data, PerClass(20)).train.labels).sum() < 200


@pytest.mark.parametrize("labels", [[0.7, 1.0], np.array([1.0, 2.0])])
def test_labels_that_are_no_whole_numbers_are_not_written(labels: Any, data_path: Path) -> None:
    with pytest.raises(UserError, match=r"labels must be whole numbers of shape \(n,\), got float"):
        write_labels(data_path / "labels.npz", digits().train.take(torch.arange(2)), labels)
    assert not (data_path / "labels.npz").exists()


def test_labels_in_order_are_those_of_all_training_samples(data_path: Path) -> None:
    data = digits()
    given = data.train.labels.flip(0)
    np.savez(data_path / "labels.npz", label=given.numpy())
    assert torch.equal(conditioned(data, NoisyLabels("labels.npz")).train.labels, given)
    with pytest.raises(UserError, match=r"a label for each of the 100 training samples, got 1077"):
        conditioned(data, PerClass(10), NoisyLabels("labels.npz"))


@pytest.mark.parametrize(
    ("arrays", "name"),
    [
        ({"human": np.arange(3)}, "label"),
        ({"label": np.array([0.5])}, "label"),
        ({"label": np.array([], dtype=np.int64)}, "label"),
        ({"label": np.array([0, 10])}, "labels"),
        ({"label": np.array([1, 2]), "sample": np.array(["x"])}, "sample"),
        ({"label": np.array([1]), "sample": np.array(["x"])}, "samples"),
    ],
)
def test_wrong_files_of_labels_are_refused(arrays: dict[str, Any], name: str, data_path: Path) -> None:
    np.savez(data_path / "labels.npz", **arrays)
    with pytest.raises(UserError, match=rf"labels\.npz.*\b{name}\b"):
        conditioned(digits(), NoisyLabels("labels.npz"))


def test_another_file_of_the_same_name_is_other_data(data_path: Path) -> None:
    """Its bytes are part of the fingerprint, which every trial is planned with."""
    regime = Regime("r", "digits", (NoisyLabels("labels.npz"),))
    with pytest.raises(MissingDataError, match=r"labels\.npz, which a condition reads, does not exist"):
        load(regime)
    prints = []
    for shift in (0, 1, 0):
        np.savez(data_path / "labels.npz", label=(digits().train.labels.numpy() + shift) % 10)
        prints.append(load(regime).fingerprint)
    assert prints[0] == prints[2] != prints[1]
    plain = load(Regime("r", "digits"))
    assert digits().fingerprint not in prints and plain.fingerprint == digits().fingerprint
    assert load(regime).train.inputs is plain.train.inputs  # type: ignore[union-attr]


def archive(damaged: slice, by: bytes) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, label=digits().train.labels.numpy())
    content = bytearray(file.getvalue())
    content[damaged] = by
    return bytes(content)


def array() -> bytes:
    file = io.BytesIO()
    np.save(file, digits().train.labels.numpy())
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"none", b"", array(), archive(slice(100, None), b""), archive(slice(60, 160), bytes([255]) * 100)],
    ids=["text", "empty", "npy", "cut off", "spoilt"],
)
def test_a_file_that_is_no_archive_is_refused(content: bytes, data_path: Path) -> None:
    (data_path / "labels.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be read as an \.npz file"):
        conditioned(digits(), NoisyLabels("labels.npz"))


def test_the_share_of_wrong_labels_is_counted_through_all_conditions() -> None:
    data = digits()
    conditions = (LabelNoise(0.5), PerClass(30), LabelNoise(0.5))
    noisy, share = noted(data, conditions, lambda role: generator(len(role)))
    plain = conditioned(data, *conditions)
    assert noisy.fingerprint == plain.fingerprint

    def pairs(split: Split) -> Iterator[tuple[bytes, int]]:
        return zip((x.numpy().tobytes() for x in split.tensor), split.labels.tolist(), strict=True)

    true = dict(pairs(data.train))
    assert share == pytest.approx(np.mean([true[image] != label for image, label in pairs(plain.train)]))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ConfusionNoise(" "), "ConfusionNoise.file"),
        (lambda: NoisyLabels(""), "NoisyLabels.file"),
    ],
)
def test_wrong_conditions_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises(UserError, match=name):
        make()
