"""Arrays that users have: ``topk new`` brings them into order, or refuses them itself with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from topk_platform.cli.studies import load_study
from topk_platform.data import Dataset, data_at, read
from topk_platform.running.preflight.arm_checks import check_study

New = Callable[..., tuple[int, str, str]]
LABELS = np.arange(48) % 4
DRAW = np.random.default_rng(0)
PIXELS = DRAW.integers(1, 256, (48, 3, 12, 10))
GREY = DRAW.integers(1, 256, (48, 12, 10))
TABLE = DRAW.integers(1, 3000, (48, 5))


def save(file: Path, arrays: dict[str, Any]) -> None:
    if file.suffix == ".npz":
        np.savez(file, **arrays)
    else:
        torch.save({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()}, file)


def made(new: New, tmp_path: Path, name: str, suffix: str, **arrays: Any) -> tuple[Dataset, str, str]:
    """Write the arrays and a study for them; return its data, its network and what was reported."""
    save(tmp_path / f"table{suffix}", arrays)
    code, _, err = new(name, "--from", f"table{suffix}")
    assert code == 0, err
    study = load_study(f"{name}:study")
    with data_at(tmp_path):
        check_study(study.smoke())
        data = read(study.arms[0].regime)
    assert isinstance(data, Dataset)
    return data, study.arms[0].model.name, err


def images(data: Dataset) -> np.ndarray:
    """All inputs of the dataset, in an order that only they decide."""
    every = np.concatenate([split.tensor.numpy().reshape(len(split), -1) for split in data.splits.values()])
    return every[np.lexsort(every.T[::-1])]


def in_order(expected: np.ndarray) -> np.ndarray:
    flat = expected.reshape(len(expected), -1)
    return flat[np.lexsort(flat.T[::-1])]


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize(
    ("name", "inputs", "expected", "network"),
    [
        ("channels_last", PIXELS.transpose(0, 2, 3, 1).astype(np.uint8), PIXELS, "convnet"),
        ("wide_bytes", PIXELS.astype(np.int64), PIXELS, "convnet"),
        ("grey", GREY.astype(np.uint8), GREY, "convnet"),
        ("short_grey", GREY.astype(np.int16), GREY, "convnet"),
        ("masks", GREY > 99, 255 * (GREY > 99), "convnet"),
        ("real_last", PIXELS.transpose(0, 2, 3, 1) / 255, PIXELS / np.float32(255), "mlp"),
        ("short_table", TABLE.astype(np.int16), TABLE, "mlp"),
        ("byte_table", (TABLE % 200).astype(np.uint8), TABLE % 200, "mlp"),
        ("marks", TABLE % 2 == 0, TABLE % 2 == 0, "mlp"),
    ],
)
def test_inputs_of_every_kind_are_taken(
    new: New, tmp_path: Path, suffix: str, name: str, inputs: np.ndarray, expected: np.ndarray, network: str
) -> None:
    data, chosen, err = made(new, tmp_path, f"{name}_{suffix[1:]}", suffix, x=inputs, y=LABELS)
    assert (chosen, err) == (network, "")
    assert data.train.inputs.dtype == (torch.uint8 if network == "convnet" else torch.float32)
    np.testing.assert_allclose(images(data), in_order(expected), rtol=1e-6)
    assert data.shape[-2:] == inputs.shape[1:][-2:] or name in ("channels_last", "real_last")


@pytest.mark.parametrize(
    ("name", "labels", "more", "classes"),
    [
        ("column", LABELS[:, None], {}, 4),
        ("truth", LABELS > 1, {}, 2),
        ("with_number", LABELS, {"classes": np.array(4)}, 4),  # which is not taken for labels
    ],
)
def test_labels_of_a_column_or_of_truth_or_beside_a_number_are_taken(
    new: New, tmp_path: Path, name: str, labels: np.ndarray, more: dict[str, np.ndarray], classes: int
) -> None:
    data, _, _ = made(new, tmp_path, name, ".npz", x=TABLE, y=labels, **more)
    assert data.classes == classes


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_arrays_that_are_split_stay_split(new: New, tmp_path: Path, suffix: str) -> None:
    table = (TABLE / 3000).astype(np.float32)
    parts = {"train": slice(0, 30), "val": slice(30, 38), "test": slice(38, 48)}
    arrays = {f"x_{part}": table[rows] for part, rows in parts.items()}
    arrays |= {f"y_{part}": LABELS[rows] for part, rows in parts.items()}
    data, _, _ = made(new, tmp_path, f"split_{suffix[1:]}", suffix, **arrays)
    for split, rows in zip(data.splits.values(), parts.values(), strict=True):
        assert np.array_equal(split.tensor, table[rows]) and np.array_equal(split.labels, LABELS[rows])


def test_groups_of_split_arrays_and_a_test_split_alone(new: New, tmp_path: Path) -> None:
    who = np.array([f"patient {row // 4}" for row in range(48)])
    arrays = {
        "train_images": GREY[:40].astype(np.uint8),
        "train_labels": LABELS[:40],
        "train_groups": who[:40],
    }
    arrays |= {"test_images": GREY[40:].astype(np.uint8), "test_labels": LABELS[40:], "test_groups": who[40:]}
    data, _, _ = made(new, tmp_path, "grouped_splits", ".npz", **arrays)
    assert len(data.test) == 8 and data.test.groups is not None and len(data.test.groups.unique()) == 2
    assert len(data.train) + len(data.validation) == 40


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": TABLE, "y": np.array(["a", "b", "c", "d"] * 12)},
            "got x (48, 5) int64, y (48,) <U1 in",
        ),
        ({"x": TABLE, "y": LABELS.astype(float)}, "got x (48, 5) int64, y (48,) float64 in"),
        ({"x": TABLE + 1j, "y": LABELS}, "inputs must be float32 or whole numbers, got"),
        ({"x_train": TABLE, "y_train": LABELS, "x_test": TABLE[:, :4], "y_test": LABELS}, "--from: "),
        ({"x_train": TABLE, "y_train": LABELS, "x_test": TABLE}, "got x_test (48, 5) int64 in"),
        ({}, "--from must hold arrays for training, got nothing in"),
        (
            {"x_test": TABLE, "y_test": LABELS},
            "for training, got x_test (48, 5) int64, y_test (48,) int64 in",
        ),
        ({"x": TABLE, "classes": np.array(4)}, "got x (48, 5) int64, classes () int64 in"),
        (
            {"x_train": TABLE / 2, "y_train": LABELS, "x_test": TABLE[:0] / 2, "y_test": LABELS[:0]},
            "--from: ",
        ),
        ({"x": TABLE, "y": np.repeat([0, 1], [46, 2])}, "a class needs at least 3 samples to be split in 3"),
    ],
)
def test_what_is_not_taken_is_refused_with_the_remedy(
    new: New, tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "table.npz", **arrays)
    code, _, err = new("mine", "--from", "table.npz")
    assert (code, len(err.splitlines())) == (2, 1) and message in err
    assert not (tmp_path / "mine.py").exists()


def test_numbers_that_only_a_later_split_has_are_kept(new: New, tmp_path: Path) -> None:
    """The training images alone would fit into bytes, in which 256 would become 0."""
    arrays = {"x_train": GREY, "y_train": LABELS, "x_test": GREY + 100, "y_test": LABELS}
    data, _, _ = made(new, tmp_path, "wider_test", ".npz", **arrays)
    assert np.array_equal(data.test.tensor.numpy(), GREY + 100)


def test_tensors_that_numpy_does_not_take_are_converted_or_refused(new: New, tmp_path: Path) -> None:
    inputs, labels = torch.from_numpy(TABLE).bfloat16(), torch.from_numpy(LABELS)
    torch.save({"x": inputs.clone().requires_grad_(), "y": labels}, tmp_path / "half.pt")
    torch.save({"x": inputs.to_sparse(), "y": labels}, tmp_path / "sparse.pt")
    code, _, err = new("of_half", "--from", "half.pt")
    assert code == 0, err
    with data_at(tmp_path):
        data = read(load_study("of_half:study").arms[0].regime)
    assert isinstance(data, Dataset)
    assert np.array_equal(images(data), in_order(inputs.float().numpy()))
    code, _, err = new("of_sparse", "--from", "sparse.pt")
    assert code == 2 and "cannot be read: can't convert Sparse layout tensor" in err


def test_images_of_0_to_255_in_real_numbers_and_black_ones_are_warned_of(new: New, tmp_path: Path) -> None:
    pixels = PIXELS.astype(np.float32)
    pixels[[3, 7]] = 0
    _, _, err = made(new, tmp_path, "far_from_0", ".npz", x=pixels, y=LABELS)
    assert "2 of 48 inputs in 'x' are zero everywhere: rows (from 0) 3, 7" in err
    assert "inputs 'x' are numbers from 0 to 255 and reach the network as they are: save them as uint8" in err
    _, _, err = made(new, tmp_path, "hounsfield", ".npz", x=8 * PIXELS.astype(np.int16) - 1000, y=LABELS)
    assert "or scale them to about -1 to 1" in err
