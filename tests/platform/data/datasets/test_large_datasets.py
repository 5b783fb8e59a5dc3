"""ImageNet, ImageNet-LT, Pl@ntNet-300K and folders like iNaturalist's, from small trees in their true layouts."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from image_archives import write_inaturalist
from torchvision.datasets import ImageFolder

from topk_platform import LabelNoise, LongTail, PerClass, Regime, TrainFraction, UserError
from topk_platform.data import (
    Dataset,
    Images,
    apply_conditions,
    imagenet,
    imagenet_lt,
    inaturalist,
    plantnet300k,
)
from topk_platform.errors import MissingDataError
from topk_platform.testing import RegimeContract
from topk_platform.testing.standins import (
    write_imagenet,
    write_imagenet_lt,
    write_inaturalist_lists,
    write_plantnet300k,
)

SMALL: dict[str, Any] = {"size": 16, "resize": 20}
IMAGENET = SMALL | {"classes": 4, "validation": 2}


def samples(data: Dataset, split: str) -> set[tuple[str, int]]:
    part = getattr(data, split)
    assert isinstance(part.inputs, Images)
    return {
        (name.decode(), label) for name, label in zip(part.inputs.names, part.labels.tolist(), strict=True)
    }


def folder_samples(root: Path, *parts: str) -> set[tuple[str, int]]:
    """What torchvision finds."""
    result = [sample for part in parts for sample in ImageFolder(root / part).samples]
    return {(Path(path).relative_to(root).as_posix(), label) for path, label in result}


def test_imagenet_holds_out_a_balanced_validation_split(data_path: Path) -> None:
    root = write_imagenet(data_path)
    data = imagenet(**IMAGENET)
    assert samples(data, "train") | samples(data, "validation") == folder_samples(root, "train")
    assert samples(data, "test") == folder_samples(root, "val")
    assert torch.bincount(data.validation.labels).tolist() == [2] * 4
    assert data.class_counts.tolist() == [6] * 4
    assert data.shape == (3, 16, 16) and data.classes == 4
    for split in (data.train, data.validation, data.test):
        assert all(batch.shape[1:] == (3, 16, 16) for batch in split.in_order(8))
    assert samples(imagenet(**IMAGENET), "validation") == samples(data, "validation")


def test_subsets_are_balanced_and_nested(data_path: Path) -> None:
    """``PerClass`` draws as many of each class however many there are; the largest is all there is."""
    root = write_imagenet(data_path, train=12)
    for number, path in enumerate(sorted((root / "train" / "n01440764").iterdir())):
        if number < 3:
            path.unlink()
    data = imagenet(**IMAGENET)
    assert data.class_counts.tolist() == [7, 10, 10, 10]
    subsets = [
        apply_conditions(data, [PerClass(count)], lambda role: torch.Generator().manual_seed(5))
        for count in (1, 3, 7, 10)
    ]
    counts = [subset.class_counts.tolist() for subset in subsets]
    assert counts == [[1] * 4, [3] * 4, [7] * 4, [7, 10, 10, 10]]
    for smaller, larger in itertools.pairwise(subsets):
        assert samples(smaller, "train") < samples(larger, "train")
    assert samples(subsets[-1], "train") == samples(data, "train")


def test_imagenet_lt_is_what_its_lists_say(data_path: Path) -> None:
    root = write_imagenet_lt(data_path)
    data = imagenet_lt(**SMALL, classes=4)
    for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        lines = (root / f"ImageNet_LT_{name}.txt").read_text().split("\n")[:-1]
        assert samples(data, split) == {(line.split()[0], int(line.split()[1])) for line in lines}
    assert data.class_counts.tolist() == [8, 4, 2, 1]
    assert data.classes == 4


def test_many_numbered_classes_keep_their_numbers(data_path: Path) -> None:
    """In the order of their names class 10 would come before class 2."""
    write_imagenet_lt(data_path, classes=12, train=2, validation=1, test=1)
    data = imagenet_lt(**SMALL, classes=12)
    synsets = sorted(path.name for path in (data_path / "imagenet" / "train").iterdir())
    for split in ("train", "validation", "test"):
        assert all(synsets[label] == name.split("/")[1] for name, label in samples(data, split))


@pytest.mark.parametrize("layout", ["published", "nested"])
def test_plantnet_is_what_its_metadata_say(data_path: Path, layout: str) -> None:
    root = write_plantnet300k(data_path)
    if layout == "nested":
        (root / "images").mkdir()
        for split in ("train", "val", "test"):
            (root / f"images_{split}").rename(root / "images" / split)
    stray = min(root.rglob("*.jpg"))
    shutil.copy(stray, stray.with_name("not-in-the-metadata.jpg"))
    data = plantnet300k(**SMALL)
    metadata = json.loads((root / "plantnet300K_metadata.json").read_text())
    species = sorted({entry["species_id"] for entry in metadata.values()})
    for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        location = f"images/{name}" if layout == "nested" else f"images_{name}"
        assert samples(data, split) == {
            (f"{location}/{entry['species_id']}/{image}.jpg", species.index(entry["species_id"]))
            for image, entry in metadata.items()
            if entry["split"] == name
        }
    assert data.class_counts.tolist() == [8, 4, 2, 1] and data.classes == 4


@pytest.mark.parametrize("year", [2017, 2018, 2019])
def test_inaturalist_is_what_its_lists_say(data_path: Path, year: int) -> None:
    """Ids are the labels; what is tested are the images of the official validation."""
    root = write_inaturalist_lists(data_path, year, classes=12, train=16)
    stray = min(root.rglob("*.jpg"))
    shutil.copy(stray, stray.with_name("in-no-list.jpg"))
    data = inaturalist(year, **SMALL, validation=0.25)
    listed: dict[str, set[tuple[str, int]]] = {}
    for part in ("train", "val"):
        content = json.loads((root / f"{part}{year}.json").read_text())
        names = {image["id"]: image["file_name"] for image in content["images"]}
        listed[part] = {(names[a["image_id"]], a["category_id"]) for a in content["annotations"]}
    assert samples(data, "test") == listed["val"]
    assert samples(data, "train") | samples(data, "validation") == listed["train"]
    held = torch.bincount(data.validation.labels, minlength=12)
    counts = data.class_counts + held
    assert counts.tolist()[0] == 16 and counts.tolist()[-1] == 2
    assert held.tolist() == [max(1, round(count / 4)) for count in counts.tolist()]
    assert data.superclasses == tuple((2, 0, 1)[label % 3] for label in range(12))  # Plantae, Aves, Fungi
    again = samples(inaturalist(year, **SMALL, validation=0.25), "validation")
    assert again == samples(data, "validation")


def test_the_only_image_of_a_class_is_trained_on(data_path: Path) -> None:
    root = write_inaturalist_lists(data_path)
    content = json.loads((root / "train2018.json").read_text())
    (first, _) = [entry for entry in content["annotations"] if entry["category_id"] == 3]
    content["annotations"].remove(first)
    (root / "train2018.json").write_text(json.dumps(content))
    data = inaturalist(**SMALL)
    assert data.class_counts.tolist()[3] == 1 and 3 not in data.validation.labels


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (imagenet, r"imagenet lacks train, val.*https://image-net\.org"),
        (imagenet_lt, r"imagenet lacks train, val.*https://image-net\.org"),
        (plantnet300k, r"plantnet_300K lacks plantnet300K_metadata\.json.*https://zenodo\.org"),
        (inaturalist, r"inaturalist2018 lacks train2018\.json, val2018\.json.*https://github\.com"),
    ],
)
def test_what_is_missing_is_said_with_where_to_get_it(data_path: Path, make: Any, named: str) -> None:
    with pytest.raises(MissingDataError, match=rf"(?s){data_path}/{named}"):
        make()


def test_missing_lists_and_images_are_said(data_path: Path) -> None:
    root = write_imagenet(data_path)
    with pytest.raises(MissingDataError, match=r"lacks ImageNet_LT_train\.txt"):
        imagenet_lt(**SMALL, classes=4)
    shutil.rmtree(root)
    root = write_imagenet_lt(data_path)
    for path in sorted((root / "val").rglob("*.JPEG"))[:7]:
        path.unlink()
    with pytest.raises(MissingDataError, match=r"ImageNet_LT_test\.txt .*val/.* and 2 more"):
        imagenet_lt(**SMALL, classes=4)
    plants = write_plantnet300k(data_path)
    min((plants / "images_val").rglob("*.jpg")).unlink()
    with pytest.raises(MissingDataError, match=r"metadata\.json .*images_val/"):
        plantnet300k(**SMALL)


def replaced(file: str, content: str) -> Callable[[Path], object]:
    return lambda root: (root / file).write_text(content)


def spoil_lines(root: Path) -> None:
    with (root / "ImageNet_LT_val.txt").open("a") as file:
        file.write("train/n01440764/a.JPEG zero\n")


def unsorted_test(root: Path) -> None:
    path = min((root / "val").rglob("*.JPEG"))
    path.rename(root / "val" / path.name)


WRITERS = {
    imagenet_lt: write_imagenet_lt,
    inaturalist: write_inaturalist_lists,
    plantnet300k: write_plantnet300k,
}


@pytest.mark.parametrize(
    ("make", "change", "named"),
    [
        (imagenet_lt, spoil_lines, r"a\.JPEG zero"),
        (imagenet_lt, replaced("ImageNet_LT_val.txt", ""), "no images of validation"),
        (imagenet_lt, replaced("train/n01440764.tar", ""), r"n01440764\.tar"),
        (imagenet_lt, unsorted_test, r"val_\d+\.JPEG"),
        *(
            (inaturalist, replaced("val2018.json", content), r"val2018\.json")
            for content in ("[1]", '{"images": [], "annotations": [{"id": 1}]}', "no json")
        ),
        *(
            (plantnet300k, replaced("plantnet300K_metadata.json", content), "species_id and split")
            for content in ("[1]", '{"a": {"split": "train"}}', "no json")
        ),
    ],
)
def test_half_a_dataset_or_another_format_is_refused(
    data_path: Path, make: Callable[..., Dataset], change: Callable[[Path], object], named: str
) -> None:
    change(WRITERS[make](data_path))
    with pytest.raises(UserError, match=named):
        make(**SMALL, **({"classes": 4} if make is imagenet_lt else {}))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: imagenet(**SMALL), "1000 classes"),
        (lambda: imagenet_lt(**SMALL), "1000 classes"),
        (lambda: imagenet(**IMAGENET | {"validation": 10}), "class 0 has 10"),
        (lambda: imagenet(**IMAGENET | {"validation": 0}), "got 0"),
        (lambda: inaturalist(2021, **SMALL), "year must"),
        (lambda: inaturalist(**SMALL, validation=0.0), "validation must"),
        (lambda: inaturalist(**SMALL, validation=1.0), "validation must"),
    ],
)
def test_the_numbers_of_classes_and_of_samples_are_checked(data_path: Path, make: Any, named: str) -> None:
    write_imagenet_lt(data_path)
    write_inaturalist_lists(data_path)
    with pytest.raises(UserError, match=named):
        make()


class _Large(RegimeContract):
    write: ClassVar[Any]

    @pytest.fixture(autouse=True)
    def _written(self, data_path: Path) -> None:
        type(self).write(data_path)


class TestImageNet(_Large):
    regime = Regime("half", "imagenet", (TrainFraction(0.5), LabelNoise(0.2)), IMAGENET)
    write = staticmethod(write_imagenet)


class TestImageNetLT(_Large):
    regime = Regime("lt", "imagenet_lt", (), SMALL | {"classes": 4})
    write = staticmethod(write_imagenet_lt)


class TestPlantNet(_Large):
    regime = Regime("plants", "plantnet300k", (), SMALL)
    write = staticmethod(write_plantnet300k)


class TestINaturalist(_Large):
    regime = Regime("noisy", "inaturalist", (LabelNoise(0.4), TrainFraction(0.7)), SMALL)
    write = staticmethod(write_inaturalist_lists)


class TestINaturalistFolders(_Large):
    regime = Regime("species", "image_files", (LongTail(2),), SMALL | {"folder": "inaturalist"})
    write = staticmethod(write_inaturalist)
