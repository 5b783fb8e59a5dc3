"""Images from Parquet files, and CIFAR-100 in each of its forms."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from image_archives import IMAGE, pictures, png, structs, write_parquet
from PIL import Image
from pyarrow import parquet

from topk_platform import Regime, UserError
from topk_platform.data import Dataset, cifar100, data_at, load
from topk_platform.data.datasets.cifar import SUPERCLASSES, read_cifar100
from topk_platform.errors import MissingDataError
from topk_platform.testing.smoke_datasets import write_cifar100

CLASSES = ("bird", "cat", "dog")


def read(folder: Path, files: str = "birds", **options: Any) -> Dataset:
    with data_at(folder):
        dataset = load(Regime("photos", "parquet_images", options={"files": files, **options}))
    assert isinstance(dataset, Dataset)
    return dataset


def test_every_form_of_cifar100_is_the_same_dataset(tmp_path: Path) -> None:
    """In the forms, the rows have other orders."""
    small = write_cifar100(tmp_path)
    names = sorted(" ".join(SUPERCLASSES.values()).split())
    for part, content in (("train", small.train), ("test", small.test)):
        images = content["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        fine, order = np.array(content["fine_labels"]), np.random.default_rng(7).permutation(len(images))
        columns = {"img": structs(images[order]), "fine_label": fine[order]}
        write_parquet(
            tmp_path / "hub/cifar100/data" / f"{part}-00000-of-00001.parquet", columns, {"fine_label": names}
        )
    pickles = read_cifar100(small.folder, small.reader)
    with data_at(tmp_path / "hub"):
        hub = cifar100()
    assert (hub.fingerprint, hub.names) == (pickles.fingerprint, pickles.names)


def test_a_class_that_the_files_name_may_have_no_image(tmp_path: Path) -> None:
    columns = {"image": structs(pictures(30)), "label": [0, 2] * 15}
    write_parquet(tmp_path / "birds/train.parquet", columns, {"label": (*CLASSES, "eel")})
    data = read(tmp_path)
    assert data.classes == 4 and data.names == (*CLASSES, "eel")
    assert data.class_counts.tolist() == [11, 0, 11, 0]


@pytest.mark.parametrize(
    ("side", "named"),
    [
        (40, "must have 32 × 32 pixels, got 40 × 40"),
        (32, "must hold the classes of CIFAR-100, got bird, cat, dog"),
    ],
)
def test_cifar100_refuses_other_images_and_classes(side: int, named: str, tmp_path: Path) -> None:
    for part, pixels in (("train", 32), ("test", side)):
        columns = {"img": structs(pictures(6, pixels, pixels)), "fine_label": [0, 1, 2] * 2}
        write_parquet(tmp_path / "cifar100" / f"{part}.parquet", columns, {"fine_label": CLASSES})
    with data_at(tmp_path), pytest.raises(UserError, match=named):
        cifar100()


def test_splits_are_named_by_their_files_and_the_others_are_taken_from_training(tmp_path: Path) -> None:
    images = pictures(30)
    for part, rows in (("train-00000-of-00002", slice(0, 12)), ("train-00001-of-00002", slice(12, 24))):
        columns = {"image": structs(images[rows]), "label": [0, 1, 2] * 4}
        write_parquet(tmp_path / "birds" / f"{part}.parquet", columns, {"label": CLASSES})
    tested = {"image": structs(images[24:]), "label": [0, 1, 2] * 2}
    write_parquet(tmp_path / "birds/test.parquet", tested, {"label": CLASSES})
    data = read(tmp_path, validation=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 6, 6)
    assert data.names == CLASSES
    assert torch.equal(data.test.tensor, torch.from_numpy(images[24:].transpose(0, 3, 1, 2)))


@pytest.mark.parametrize("kind", ["bytes", "paths"])
def test_images_are_bytes_or_paths(tmp_path: Path, kind: str) -> None:
    images = pictures(30)
    (tmp_path / "pictures").mkdir()
    for row, image in enumerate(images):
        (tmp_path / f"pictures/{row}.png").write_bytes(png(image))
    column = {
        "bytes": pa.array([png(image) for image in images], pa.binary()),
        "paths": pa.array([{"bytes": None, "path": f"pictures/{row}.png"} for row in range(30)], IMAGE),
    }[kind]
    write_parquet(tmp_path / "birds.parquet", {"image": column, "label": list(CLASSES) * 10})
    data = read(tmp_path, "birds.parquet")
    assert data.names == CLASSES
    got = torch.cat([split.tensor for split in data.splits.values()])
    assert sorted(map(bytes, got.permute(0, 2, 3, 1).numpy())) == sorted(map(bytes, images))


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "ppm", "tiff", "webp", "gif", "tga"])
def test_image_files_of_any_format_are_read_at_their_own_size(tmp_path: Path, kind: str) -> None:
    files = []
    for image in pictures(30):
        file = io.BytesIO()
        Image.fromarray(image).save(file, kind)
        files.append(file.getvalue())
    write_parquet(
        tmp_path / "birds.parquet", {"image": pa.array(files, pa.binary()), "label": list(CLASSES) * 10}
    )
    data = read(tmp_path, "birds.parquet")
    got = torch.cat([split.tensor for split in data.splits.values()]).permute(0, 2, 3, 1).numpy()
    expected = [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files]
    assert sorted(map(bytes, got)) == sorted(map(bytes, expected))


def test_images_of_several_sizes_are_cut_to_one(tmp_path: Path) -> None:
    images = [*pictures(15), *pictures(15, 12, 12)]
    write_parquet(tmp_path / "birds/train.parquet", {"image": structs(images), "label": [0, 1, 2] * 10})
    assert read(tmp_path, size=6).shape == (3, 6, 6)
    with pytest.raises(UserError, match=r"images must be of one size, got .*: set size"):
        read(tmp_path)


def test_classes_are_matched_by_name_where_files_number_them_in_other_ways(tmp_path: Path) -> None:
    images = pictures(30)
    rows = {"train-0": (CLASSES, [0, 1, 2] * 4), "train-1": (("dog", "bird"), [0, 1] * 6)}
    rows["test"] = ("bird", "dog"), [0, 1] * 3
    for part, (names, labels) in rows.items():
        chosen = images[-6:] if part == "test" else images[: len(labels)]
        columns = {"image": structs(chosen), "label": labels}
        write_parquet(tmp_path / "birds" / f"{part}.parquet", columns, {"label": names})
    data = read(tmp_path)
    assert data.names == CLASSES
    assert data.test.labels.tolist() == [0, 2] * 3
    counts = data.class_counts + torch.bincount(data.validation.labels, minlength=3)
    assert counts.tolist() == [10, 4, 10]


def test_other_columns_do_not_matter(tmp_path: Path) -> None:
    others = {"age": [None, 1] * 15}, {"id": pa.array([2**64 - 1] * 30, pa.uint64())}, {}
    for part, other in enumerate(others):
        columns = {"image": structs(pictures(30, seed=part)), "label": [0, 1, 2] * 10, **other}
        write_parquet(tmp_path / "birds" / f"train-{part}.parquet", columns)
    data = read(tmp_path)
    assert sum(map(len, data.splits.values())) == 90


@pytest.mark.parametrize("names", [None, CLASSES])
def test_a_split_with_hidden_labels_is_left_out(tmp_path: Path, names: tuple[str, ...] | None) -> None:
    known = None if names is None else {"label": names}
    for seed, (part, labels) in enumerate({"train": [0, 1, 2] * 10, "test": [-1] * 5}.items()):
        columns = {"image": structs(pictures(len(labels), seed=seed)), "label": labels}
        write_parquet(tmp_path / f"birds/{part}.parquet", columns, known)
        shutil.copy(tmp_path / f"birds/{part}.parquet", tmp_path / f"birds/._{part}.parquet")
    data = read(tmp_path)
    assert [len(split) for split in data.splits.values()] == [24, 3, 3]
    assert data.notes == ("the labels of test are hidden, all -1: it is left out",)
    with pytest.raises(UserError, match="training images must have labels, got -1"):
        read(tmp_path, "birds/test.parquet")


@pytest.mark.parametrize("features", [{}, {"info": {"features": {"box": [{"dtype": "int32"}]}}}])
def test_a_description_of_lists_or_of_nothing_is_no_error(tmp_path: Path, features: dict[str, Any]) -> None:
    """The description of a list of numbers, such as of boxes, is a list itself."""
    table = pa.table({"image": structs(pictures(30)), "label": [0, 1, 2] * 10, "box": [[1, 2]] * 30})
    noted = table.replace_schema_metadata({b"huggingface": json.dumps(features).encode()})
    parquet.write_table(noted, tmp_path / "birds.parquet")
    assert read(tmp_path, "birds.parquet", image="image").classes == 3


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_parquet(
        tmp_path / "birds/train-0.parquet", {"image": structs(pictures(30)), "label": [0, 1, 2] * 10}
    )
    (tmp_path / "birds/train-1.parquet").write_bytes(b"cut")
    with pytest.raises(UserError, match=r"birds/train-1\.parquet cannot be read: "):
        read(tmp_path)


def broken(images: np.ndarray) -> pa.Array:
    rows = structs(images).to_pylist()
    rows[4]["bytes"] = rows[4]["bytes"][:40]
    return pa.array(rows, IMAGE)


IMAGES = structs(pictures(3))


IN_CLASSES = {"label": CLASSES}
NO_CLASS = r"labels must|train\.parquet must hold a label"
UNLABELLED = [
    *(([0, None, 1], {}), ([0, 1, -1], IN_CLASSES), ([1, 2, 3], {})),
    *(([-1, 0, 1], {}), ([0, 1, 100_000], {}), ([0.5, 1.0, 2.0], {})),
]


@pytest.mark.parametrize(
    ("columns", "names", "options", "named"),
    [
        ({"image": broken(pictures(30)), "label": [0, 1, 2] * 10}, {}, {}, "row 4: "),
        ({"image": IMAGES, "kind": [0, 1, 2]}, {}, {}, "one column of labels"),
        ({"image": IMAGES, "kind": [0, 1, 2]}, {}, {"label": "sort"}, "'sort'"),
        ({"image": IMAGES, "mask": IMAGES, "label": [0, 1, 2]}, {}, {}, r"\['image', 'mask'\]"),
        ({"image": IMAGES, "label": [0, 1, 2]}, {}, {"size": -1}, "size must be"),
        *(
            ({"image": structs(pictures(12)), "label": 4 * labels}, names, {}, NO_CLASS)
            for labels, names in UNLABELLED
        ),
    ],
)
def test_bad_files_and_images_without_a_class_are_refused_by_name(
    tmp_path: Path, columns: dict[str, Any], names: Any, options: dict[str, Any], named: str
) -> None:
    write_parquet(tmp_path / "birds/train.parquet", columns, names or None)
    with pytest.raises(UserError, match=named):
        read(tmp_path, **options)


def test_files_without_a_split_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no such file or folder"):
        read(tmp_path)
    write_parquet(tmp_path / "birds/part-0.parquet", {"image": structs(pictures(3)), "label": [0, 1, 2]})
    with pytest.raises(UserError, match="must belong to a split"):
        read(tmp_path)
