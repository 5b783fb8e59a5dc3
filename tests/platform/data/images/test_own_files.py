"""Lists of a user's files: folders of classes, and one folder with a table of labels."""

from __future__ import annotations

import shutil
from pathlib import Path
from unicodedata import normalize

import pytest
from made_photos import READERS, Read, by_both_readers, write_photos

from topk_platform import UserError
from topk_platform.data import image_folder
from topk_platform.data.folders import folders_below

NAMES = [f"{name}{number}" for name in ("ant", "bee", "cod") for number in range(12)]


@pytest.fixture
def photos(data_path: Path) -> Path:
    """Thirty-six photos, each of other pixels, in one folder."""
    write_photos(data_path, ["mine"], len(NAMES))
    for number, name in enumerate(NAMES):
        (data_path / "mine" / f"{number:03}.png").rename(data_path / "mine" / f"{name}.png")
    return data_path / "mine"


def in_classes(photos: Path) -> Path:
    for name in NAMES:
        (photos / name[:3]).mkdir(exist_ok=True)
        (photos / f"{name}.png").rename(photos / name[:3] / f"{name}.png")
    return photos


def labels(separator: str = ",", ending: str = ".png") -> list[str]:
    return [separator.join((f"{name}{ending}", name[:3])) for name in NAMES]


@by_both_readers
@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["file,label", *labels()]),
        "\ufeff" + "\r\n".join(["Label;File", *(";".join(reversed(line.split(","))) for line in labels())]),
        "\n".join(labels("\t", "")),
        "\n".join(["image_id,age,dx", *(f"{name},7,{name[:3]}" for name in NAMES)]),
        "\n".join(["path|class", *(f'"some/where/{name}.png"|{name[:3]}' for name in NAMES)]),
    ],
)
def test_a_table_of_labels_is_as_good_as_folders(photos: Path, read: Read, text: str) -> None:
    (photos / "labels.csv").write_text(text)
    table = read("mine", labels="labels.csv")
    in_classes(photos)
    folders = image_folder("mine", 8)
    assert table.class_names == folders.class_names == ("ant", "bee", "cod")
    for name, split in table.splits.items():
        assert split.labels.tolist() == folders.splits[name].labels.tolist()
        if read is READERS["image_folder"]:
            assert bool((split.tensor == folders.splits[name].tensor).all())


def test_a_table_may_have_splits_and_groups(photos: Path) -> None:
    parts = ["Train", "train", "val", "testing"]
    rows = [(name, row % 4) for row, name in enumerate(NAMES) if row != 5]
    lines = [f"{name}.png,{name[:3]},{parts[part]},{'abcd'[part]}" for name, part in rows]
    (photos.parent / "labels.csv").write_text("\n".join(["name,category,set,patient", *lines]))
    data = image_folder("mine", 8, labels="../labels.csv", called="patients")
    assert [len(split) for split in data.splits.values()] == [17, 9, 9]
    assert data.groups == "patients" and data.test.groups is not None
    assert data.test.groups.unique().tolist() == [3]
    assert data.notes == ("files not read: 1 .png",)
    assert image_folder("mine", 8, labels="../labels.csv", groups="{group}.png").train.groups is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("file,label\nant0.png,a\nant0.png,b", "each image once, got several lines of ant0.png"),
        ("file,label\nant0.png,a\nant9.gif,b", "1 images of .* are not in .*: ant9.gif"),
        ("file,label\nant0.png,a\nant1.png,", "label for each image, got none of ant1.png"),
        ("file,label,split\nant0.png,a,train\nant1.png,a,later", "a split .* later"),
        (
            "file,label,split\nant0.png,a,train\nant1.png,b,test",
            "training images of each class, got none of b",
        ),
        ("file,label,split\nant0.png,a,test\nant1.png,b,test", "images of the split train"),
        ("file,colour\nant0.png,a", "a column of labels"),
        ("file,label\nant0.png", "cells in each line"),
        ("", "a line for each image"),
        ("ant0.png\nant1.png", "a file and its label"),
    ],
)
def test_tables_that_name_no_classes_are_refused(photos: Path, text: str, named: str) -> None:
    (photos / "labels.csv").write_text(text)
    with pytest.raises(UserError, match=f"labels: .*{named}"):
        image_folder("mine", 8, labels="labels.csv")


def test_a_table_in_another_encoding_or_none_is_refused(photos: Path) -> None:
    with pytest.raises(UserError, match="labels: there is no"):
        image_folder("mine", 8, labels="labels.csv")
    (photos / "labels.csv").write_bytes("file,label\nant0.png,Käfer".encode("cp1252"))
    with pytest.raises(UserError, match=r"labels: .* cannot be read: .*UTF-8"):
        image_folder("mine", 8, labels="labels.csv")


@by_both_readers
@pytest.mark.parametrize("left", ["@eaDir", ".thumbnails", "lost+found", "$RECYCLE.BIN", "__MACOSX"])
@pytest.mark.parametrize("under", ["", "bee"])
def test_what_systems_leave_is_left_out_and_counted(photos: Path, read: Read, left: str, under: str) -> None:
    in_classes(photos)
    before = read("mine")
    shutil.copytree(photos / "ant", photos / under / left / "inner")
    after = read("mine")
    assert (after.fingerprint, after.class_names) == (before.fingerprint, ("ant", "bee", "cod"))
    assert after.notes == (f"files not read: 12 in {left}, which a system left there",)


@by_both_readers
def test_names_that_differ_in_their_unicode_form_alone_are_one_class(photos: Path, read: Read) -> None:
    in_classes(photos)
    one, other = normalize("NFC", "Käfer"), normalize("NFD", "Käfer")
    (photos / "ant").rename(photos / one)
    (photos / "cod").rename(photos / other)
    data = read("mine")
    assert set(data.class_names) == {"bee", one}
    assert sum(map(len, data.splits.values())) == 36


def test_folders_come_in_the_order_of_their_names_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").touch()
    (tmp_path / "a" / "broken").symlink_to("nowhere")
    below = [(folder.name, names) for folder, names in folders_below(tmp_path)]
    assert below[1:] == [("a", ["1.txt", "broken"]), ("b", ["1.txt"]), ("c", ["1.txt"])]
    assert [*folders_below(tmp_path / "gone")] == []
