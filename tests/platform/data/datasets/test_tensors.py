"""One's own images and tensors."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_photos import Read, by_both_readers
from PIL import Image
from torchvision.datasets import ImageFolder

from topk_platform import LongTail, Model, Regime, UserError
from topk_platform.data import (
    DATASETS,
    Dataset,
    Split,
    data_at,
    data_folder,
    from_tensors,
    image_folder,
    load,
)
from topk_platform.data.images.decoding import square
from topk_platform.data.splitting import stratified
from topk_platform.errors import MissingDataError
from topk_platform.testing import RegimeContract


def draw(folder: Path, classes: str = "abc", count: int = 10, size: tuple[int, int] = (12, 9)) -> None:
    """Write ``count`` images of each class, in the class's colour and a shade of its own; each folder has others."""
    for index, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.zeros((*size, 3), dtype=np.uint8)
            pixels[..., index % 3] = 100 + number + 30 * (index // 3)
            pixels[..., (index + 1) % 3] = zlib.crc32(folder.name.encode()) % 90
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture
def folder(data_path: Path) -> Path:
    return data_path / "mine"


def images(data: Dataset) -> list[tuple[int, ...]]:
    splits = (data.train, data.validation, data.test)
    return sorted(tuple(row.tolist()) for split in splits for row in split.inputs[:, :, 3, 3])


def test_one_folder_is_split_by_fractions(folder: Path) -> None:
    draw(folder)
    data = image_folder("mine", size=8, validation=0.2, test=0.3)
    assert data.shape == (3, 8, 8) and data.train.inputs.dtype == torch.uint8
    assert data.class_counts.tolist() == [5, 5, 5]
    assert torch.bincount(data.validation.labels).tolist() == [2, 2, 2]
    assert torch.bincount(data.test.labels).tolist() == [3, 3, 3]
    assert len(set(images(data))) == 30
    for split in (data.train, data.validation, data.test):
        assert torch.equal(split.inputs.amax((2, 3)).argmax(1), split.labels)
    assert image_folder("mine", size=8, validation=0.2, test=0.3).fingerprint == data.fingerprint


@by_both_readers
@pytest.mark.parametrize(
    "hidden", ["train/a/._0.png", "train/a/.x", "train/.x/0.png", "val/.x/0.png", "train/a/.x/0.png"]
)
def test_hidden_files_are_no_images_hidden_folders_no_classes(hidden: str, folder: Path, read: Read) -> None:
    draw(folder / "train")
    draw(folder / "val")
    before = read("mine").fingerprint
    (folder / hidden).parent.mkdir(exist_ok=True)
    shutil.copy(folder / "train" / "a" / "0.png", folder / hidden)
    assert read("mine").fingerprint == before


def test_an_image_that_is_too_large_when_it_is_scaled_is_named(folder: Path) -> None:
    draw(folder)
    Image.new("RGB", (1, 60_000)).save(folder / "a" / "narrow.png")
    with pytest.raises(UserError, match=r"1 of 31 images .*narrow\.png"):
        image_folder("mine", size=64)


def test_images_and_their_order_are_torchvisions(folder: Path) -> None:
    """Also of images in folders of a class's folder."""
    draw(folder / "train", count=3)
    draw(folder / "test", count=1)
    for shade, name in enumerate(("z", "b", "b-1", "b/c")):
        (folder / "train" / "a" / name).mkdir()
        Image.new("RGB", (9, 12), (shade, 1, 0)).save(folder / "train" / "a" / name / "B.PNG")
        Image.new("RGB", (9, 12), (shade, 2, 0)).save(folder / "train" / "a" / name / "a.png")
    mine = image_folder("mine", size=8, validation=0.01)
    expected = ImageFolder(folder / "train")
    pixels, labels = [square(path, 8) for path, _ in expected.samples], torch.tensor(expected.targets)
    kept, _ = stratified(labels, (0.01,), torch.Generator().manual_seed(0), mine.names)
    assert torch.equal(mine.train.tensor, torch.stack([pixels[row] for row in kept]))
    assert torch.equal(mine.train.labels, labels[kept])


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("val", [18, 6, 9]), ("valid", [18, 6, 9]), ("validation", [18, 6, 9]), ("", [15, 3, 9])],
)
def test_folders_are_splits_and_others_come_from_training(folder: Path, name: str, sizes: list[int]) -> None:
    for split, count in (("train", 6), (name, 2), ("test", 3)):
        if split:
            draw(folder / split, count=count)
    data = image_folder("mine", size=8, validation=0.2, test=0.5)
    assert [len(s) for s in data.splits.values()] == sizes


def test_images_are_scaled_cut_and_made_rgb(folder: Path) -> None:
    """Of a wide picture that is grey but for its ends, the middle square is grey."""
    for index, name in enumerate(("a", "b")):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((20, 60), 200 + 10 * index + number, dtype=np.uint8)
            pixels[:, :15] = pixels[:, 45:] = number
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    data = image_folder("mine", size=10, validation=0.3, test=0.3)
    assert data.shape == (3, 10, 10)
    assert bool(
        (data.train.inputs == data.train.inputs[:, :1, :1, :1]).all() and data.train.inputs.min() >= 200
    )


def test_the_data_folder_is_data_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPK_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert data_folder() == tmp_path / "data"
    with data_at("relative"):
        assert data_folder() == tmp_path / "relative"
        with data_at(None):
            assert data_folder() == tmp_path / "relative"
    assert data_folder() == tmp_path / "data"


def test_missing_and_broken_images_are_one_clear_error(folder: Path) -> None:
    def refused(match: str, size: int = 64) -> None:
        with pytest.raises(UserError, match=match):
            image_folder("mine", size=size)

    with pytest.raises(MissingDataError, match=f"{folder}.*--data DIR"):
        image_folder("mine")
    folder.mkdir()
    refused("mine must hold folders of images, one per class")
    draw(folder / "train", "abc")
    draw(folder / "test", "abd")
    refused(r"test .* d$")
    (folder / "test" / "d").rename(folder / "test" / "c")
    for name in ("a/0.png", "c/9.png"):
        (folder / "train" / name).write_bytes(b"no picture")
    refused(r"2 of 60 images .*a/0.png: .*, .*c/9.png: ")
    (folder / "val").mkdir()
    (folder / "valid").mkdir()
    refused("validation must be one folder")
    refused("size must be", size=0)


@by_both_readers
def test_a_class_may_lack_images_in_validation_and_test(folder: Path, read: Read) -> None:
    """By its folder, which may be empty or not be there."""
    draw(folder / "train", "abc")
    draw(folder / "val", "ac")
    draw(folder / "test", "bc")
    (folder / "test" / "a").mkdir()
    data = read("mine")
    assert (data.classes, data.class_names) == (3, ("a", "b", "c"))
    labels = [sorted(set(split.labels.tolist())) for split in data.splits.values()]
    assert labels == [[0, 1, 2], [0, 2], [1, 2]]
    draw(folder / "val", "d")
    with pytest.raises(UserError, match=r"val must have no class that training lacks, got d$"):
        read("mine")


@by_both_readers
def test_an_empty_folder_is_no_class_and_an_empty_split_none(folder: Path, read: Read) -> None:
    draw(folder / "train", "ab")
    draw(folder / "test", "ab")
    (folder / "train" / "c").mkdir()
    data = read("mine")
    assert data.class_names == ("a", "b") and any("no classes: c" in note for note in data.notes)
    for picture in (folder / "test").glob("*/*"):
        picture.unlink()
    with pytest.raises(UserError, match=r"test must hold folders of images.* none in a, b"):
        read("mine")


@by_both_readers
def test_a_folder_beside_train_that_is_no_split_is_named(folder: Path, read: Read) -> None:
    """Else a `dev` in place of a `val` would be ignored, and validation taken from training."""
    for split in ("train", "dev", "test"):
        draw(folder / split)
    with pytest.raises(UserError, match=r"\['dev'\] beside 'train'"):
        read("mine")
    (folder / "dev").rename(folder / ".dev")
    (folder / "notes.txt").touch()
    assert len(read("mine").test) == 30
    (folder / "train").rename(folder / "Train")
    with pytest.raises(UserError, match=r"\['Train', 'test'\].* no folder 'train'"):
        read("mine")


def test_a_pair_of_tensors_is_split_by_fractions() -> None:
    inputs, labels = torch.arange(400.0).reshape(100, 4), torch.arange(100) % 5
    data = from_tensors((inputs, labels), validation=0.2, test=0.1, superclasses=[0, 0, 1, 1, 1])
    assert [len(s) for s in (data.train, data.validation, data.test)] == [70, 20, 10]
    assert data.superclasses == (0, 0, 1, 1, 1)
    rows = torch.cat([s.inputs[:, 0] for s in (data.train, data.validation, data.test)]).long() // 4
    assert rows.sort().values.tolist() == list(range(100))
    for split in (data.train, data.validation, data.test):
        assert torch.equal(split.labels, split.inputs[:, 0].long() // 4 % 5)


def test_splits_that_are_given_are_kept() -> None:
    pair = (np.zeros((6, 2), dtype=np.float32), np.arange(6, dtype=np.int32) % 3)
    data = from_tensors(pair, validation=pair, test=0.34)
    assert [len(s) for s in (data.train, data.validation, data.test)] == [3, 6, 3]
    assert torch.equal(data.validation.labels, torch.arange(6) % 3)
    assert len(from_tensors(pair, pair, pair).train) == 6


X, Y = torch.zeros(4, 2), torch.arange(4)


@pytest.mark.parametrize(
    ("train", "others", "name"),
    [
        ((X, Y.float()), (), "labels"),
        ((X, torch.arange(3)), (), "labels"),
        ((X, torch.tensor([0, 0, 1, 1])), (), "class 0 has 2, 1 has 2"),
        ((X, torch.tensor([0, 0, 1, 1])), (0.1, 0.1, None, ("owl", "gull")), "'owl' has 2, 'gull' has 2"),
        ((X, ["a", "b", "a", "b"]), (), "np.unique"),
        ((X[:2], np.array(["a", "b"])), (), "np.unique"),
        ((X, torch.eye(4).long()), (), "labels.argmax"),
        ((X, torch.ones(4, 1).int()), (), r"labels\[:, 0\]"),
        ((X, Y + 1), (), "labels - 1"),
        ((X, torch.tensor([0, 1, 255, -3])), (), "labels .*-3, 255"),
        ((X[:, 0], Y), (), r"inputs\[:, None\]"),
        (([torch.zeros(2)] * 4, Y), (), "torch.stack"),
        (([Image.new("L", (2, 2))] * 4, Y), (), "pil_to_tensor"),
        (([[1.0], [1.0, 2.0]], [0, 1]), (), "train inputs"),
        (X, (), "train"),
        ((X, Y), (None,), "validation"),
        ((X, Y), ((1, 2, 3, 4),), "validation"),
        ((X + 1j, Y), (), "inputs"),
        ((torch.zeros(4, 9, 9, 3), Y), (), "inputs.permute"),
    ],
)
def test_bad_tensors_are_refused(train: Any, others: tuple[Any, ...], name: str) -> None:
    with pytest.raises(UserError, match=name):
        from_tensors(train, *others)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (-0.1, 0.5), (float("nan"),)])
def test_fractions_that_leave_nothing_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="fractions"):
        stratified(torch.zeros(9).long(), fractions, torch.Generator())


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [np.uint8, np.int16, np.int32, np.uint32, np.int64])
def test_numbers_of_any_precision_become_what_is_trained_on(kind: type, number: type) -> None:
    inputs = np.arange(80).reshape(40, 2)
    data = from_tensors((inputs.astype(kind), (np.arange(40) % 4).astype(number)))
    assert (data.train.inputs.dtype, data.train.labels.dtype) == (torch.float32, torch.int64)
    plain = from_tensors((torch.from_numpy(inputs).float(), torch.arange(40) % 4))
    assert data.fingerprint == plain.fingerprint


def test_tables_keep_the_order_of_their_rows() -> None:
    """Torch alone takes a series in the order of its index, so that labels would go to other inputs."""
    table = pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40) % 4}).sample(frac=1, random_state=0)
    pair = table[["x"]], table["y"]
    data = from_tensors(pair, pair, pair)
    assert torch.equal(data.train.inputs[:, 0].long() % 4, data.train.labels)
    assert data.train.inputs[:, 0].tolist() == table["x"].tolist()


def test_what_a_network_made_is_taken_without_its_gradient() -> None:
    inputs = torch.nn.Linear(3, 2)(torch.zeros(40, 3))
    assert not from_tensors((inputs, torch.arange(40) % 4)).train.tensor.requires_grad
    with pytest.raises(UserError, match="inputs must need no gradient"):
        Split(inputs, torch.arange(40))


def test_what_is_not_finite_is_named_by_its_row_in_the_users_array() -> None:
    """The split in which it ends is dealt later and has other rows."""
    inputs = np.zeros((400, 3))
    inputs[317, 1] = np.nan
    with pytest.raises(
        UserError, match=r"inputs must be finite.*sample 317 \(from 0\) of the given train inputs"
    ):
        from_tensors((inputs, np.arange(400) % 4))


def test_a_dataset_may_call_its_options_name_and_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str, function: str = "square") -> Dataset:
        inputs = torch.full((30, 1), float(len(name + function)))
        return from_tensors((inputs, torch.arange(30) % 3))

    monkeypatch.setitem(DATASETS, "named", named)  # type: ignore[arg-type]
    data = load(Regime("mine", "named", options={"name": "abc", "function": "sine"}))
    assert isinstance(data, Dataset) and data.train.inputs[0, 0] == 7


class TestImageFolder(RegimeContract):
    regime = Regime("tail", "image_folder", (LongTail(3),), {"folder": "mine", "size": 8, "test": 0.2})
    model = Model("bytes_convnet")

    @pytest.fixture(autouse=True)
    def _drawn(self, folder: Path, bytes_convnet: None) -> None:
        draw(folder)
