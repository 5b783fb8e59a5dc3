"""Arrays that users have: ``array_file`` brings them into order, or refuses them with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from topk_platform import UserError
from topk_platform.data import Dataset, array_file

LABELS = np.arange(48) % 4
DRAW = np.random.default_rng(0)
PIXELS = DRAW.integers(1, 256, (48, 3, 12, 10))
GREY = DRAW.integers(1, 256, (48, 12, 10))
TABLE = DRAW.integers(1, 3000, (48, 5))
HALF = torch.from_numpy(TABLE).bfloat16()

pytestmark = pytest.mark.usefixtures("data_path")


def made(folder: Path, suffix: str = ".npz", **arrays: Any) -> Dataset:
    """Write the arrays and return what is read of them."""
    if suffix == ".npz":
        np.savez(folder / "table.npz", **arrays)
    else:
        torch.save({name: torch.as_tensor(array) for name, array in arrays.items()}, folder / "table.pt")
    return array_file(f"table{suffix}")


def in_order(inputs: Any) -> np.ndarray:
    """Return inputs in an order that only they decide."""
    flat = np.asarray(inputs).reshape(len(inputs), -1)
    return flat[np.lexsort(flat.T[::-1])]


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
@pytest.mark.parametrize(
    ("inputs", "expected", "shape"),
    [
        (PIXELS.transpose(0, 2, 3, 1).astype(np.uint8), PIXELS, (3, 12, 10)),
        (PIXELS.astype(np.int64), PIXELS, (3, 12, 10)),
        (GREY.astype(np.uint8), GREY, (1, 12, 10)),
        (GREY.astype(np.int16), GREY, (1, 12, 10)),
        (GREY > 99, 255 * (GREY > 99), (1, 12, 10)),
        (PIXELS.transpose(0, 2, 3, 1) / 255, PIXELS / np.float32(255), (3, 12, 10)),
        (TABLE.astype(np.int16), TABLE, (5,)),
        ((TABLE % 200).astype(np.uint8), TABLE % 200, (5,)),
        (TABLE % 2 == 0, TABLE % 2 == 0, (5,)),
    ],
)
def test_inputs_of_every_kind_are_taken(
    tmp_path: Path, suffix: str, inputs: np.ndarray, expected: np.ndarray, shape: tuple[int, ...]
) -> None:
    data = made(tmp_path, suffix, x=inputs, y=LABELS)
    whole = len(shape) == 3 and inputs.dtype.kind != "f"
    assert data.train.inputs.dtype == (torch.uint8 if whole else torch.float32) and data.shape == shape
    every = torch.cat([split.tensor for split in data.splits.values()])
    np.testing.assert_allclose(in_order(every), in_order(expected), rtol=1e-6)


@pytest.mark.parametrize(
    ("labels", "more", "classes"),
    [
        (LABELS[:, None], {}, 4),
        (LABELS > 1, {}, 2),
        (LABELS, {"classes": np.array(4)}, 4),  # which is not taken for labels
    ],
)
def test_labels_of_a_column_or_of_truth_or_beside_a_number_are_taken(
    tmp_path: Path, labels: np.ndarray, more: dict[str, np.ndarray], classes: int
) -> None:
    assert made(tmp_path, x=TABLE, y=labels, **more).classes == classes


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_arrays_that_are_split_stay_split(tmp_path: Path, suffix: str) -> None:
    parts = {"train": slice(0, 30), "val": slice(30, 38), "test": slice(38, 48)}
    table = (TABLE / 3000).astype(np.float32)
    arrays = {f"x_{part}": table[rows] for part, rows in parts.items()}
    data = made(tmp_path, suffix, **arrays, **{f"y_{part}": LABELS[rows] for part, rows in parts.items()})
    for split, rows in zip(data.splits.values(), parts.values(), strict=True):
        assert np.array_equal(split.tensor, table[rows]) and np.array_equal(split.labels, LABELS[rows])


def test_groups_of_split_arrays_and_a_test_split_alone(tmp_path: Path) -> None:
    arrays = {"images": GREY.astype(np.uint8), "labels": LABELS, "groups": np.arange(48) // 4}
    parts = {"train": slice(0, 40), "test": slice(40, 48)}
    split = {f"{part}_{name}": a[rows] for part, rows in parts.items() for name, a in arrays.items()}
    data = made(tmp_path, **split)
    assert len(data.test) == 8 and data.test.groups is not None and len(data.test.groups.unique()) == 2
    assert len(data.train) + len(data.validation) == 40


SPLIT = {"x_train": TABLE, "y_train": LABELS}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": TABLE, "y": np.array(["a", "b"] * 24)}, "got x (48, 5) int64, y (48,) <U1: numpy.unique"),
        ({"x": TABLE, "y": LABELS.astype(float)}, "got x (48, 5) int64, y (48,) float64"),
        ({"x": TABLE + 1j, "y": LABELS}, "inputs must be float32 or whole numbers, got"),
        (SPLIT | {"x_test": TABLE[:, :4], "y_test": LABELS}, "one type and shape"),
        (SPLIT | {"x_test": TABLE}, "got x_test (48, 5) int64"),
        ({}, "must hold arrays for training, got nothing"),
        ({"x_test": TABLE, "y_test": LABELS}, "for training, got x_test (48, 5) int64, y_test (48,) int64"),
        ({"x": TABLE, "classes": np.array(4)}, "got x (48, 5) int64, classes () int64"),
        ({"x": TABLE, "y": np.repeat([0, 1], [46, 2])}, "a class needs at least 3 samples to be split in 3"),
    ],
)
def test_what_is_not_taken_names_the_remedy(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        made(tmp_path, **arrays)
    assert message in str(caught.value)


def test_numbers_that_only_a_later_split_has_are_kept(tmp_path: Path) -> None:
    """The training images alone would fit into bytes, in which 256 would become 0."""
    data = made(tmp_path, x_train=GREY, y_train=LABELS, x_test=GREY + 100, y_test=LABELS)
    assert np.array_equal(data.test.tensor.numpy(), GREY + 100)


def test_tensors_that_numpy_does_not_take_are_converted_or_refused(tmp_path: Path) -> None:
    data = made(tmp_path, ".pt", x=HALF.clone().requires_grad_(), y=LABELS)
    every = torch.cat([split.tensor for split in data.splits.values()])
    assert np.array_equal(in_order(every), in_order(HALF.float()))
    with pytest.raises(UserError, match=r"table\.pt cannot be read: can't convert Sparse layout tensor"):
        made(tmp_path, ".pt", x=HALF.to_sparse(), y=LABELS)


def test_images_of_0_to_255_in_real_numbers_and_black_ones_are_noted(tmp_path: Path) -> None:
    pixels = PIXELS.astype(np.float32)
    pixels[[3, 7]] = 0
    black, far = made(tmp_path, x=pixels, y=LABELS).notes
    assert black == "2 of 48 inputs in 'x' are zero everywhere: rows (from 0) 3, 7"
    assert "inputs 'x' are numbers from 0 to 255 and reach the network as they are: save them as uint8" in far
    (far,) = made(tmp_path, x=8 * PIXELS.astype(np.int16) - 1000, y=LABELS).notes
    assert "or scale them to about -1 to 1" in far
