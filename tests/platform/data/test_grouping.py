"""Groups of samples: read from names, tables and arrays, kept whole by splits and conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_photos import Read, by_both_readers
from PIL import Image
from torch import Generator, Tensor

from topk_platform import PerClass, TrainFraction, UserError
from topk_platform.data import (
    Dataset,
    Split,
    apply_conditions,
    from_tensors,
    image_folder,
    letters,
)
from topk_platform.data.grouping import matched, split_whole_groups
from topk_platform.errors import MissingDataError
from topk_platform.specs import Condition


@pytest.fixture
def photos(data_path: Path) -> Path:
    """Three classes of 24 photos each, by the photographers a to h, three photos each of every class."""
    folder = data_path / "photos"
    for index, name in enumerate(("gull", "owl", "wren")):
        (folder / name).mkdir(parents=True)
        for number in range(24):
            pixels = np.full((9, 9, 3), 80 * index + number, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{'abcdefgh'[number // 3]}_{number}.png")
    return folder


def groups_of(data: Dataset) -> dict[str, set[int]]:
    return {name: set() if s.groups is None else set(s.groups.tolist()) for name, s in data.splits.items()}


def apart(data: Dataset) -> bool:
    one, two, three = groups_of(data).values()
    return not (one & two or one & three or two & three)


@by_both_readers
def test_a_pattern_names_the_groups_of_images(read: Read, photos: Path) -> None:
    split: dict[str, Any] = {"validation": 0.2, "test": 0.2}
    how = {**split, "groups": "{class}/{group}_*", "called": "photographers"}
    data = read("photos", **how)
    assert data.groups == "photographers" and apart(data)
    assert set.union(*groups_of(data).values()) == set(range(8))
    assert all(len(split.labels.unique()) == 3 for split in data.splits.values())
    assert 0.1 < len(data.test) / 72 < 0.3
    mixed = read("photos", **how, whole_groups=False)
    assert not apart(mixed)
    plain = read("photos", **split)
    assert plain.test.fingerprint == mixed.test.fingerprint and plain.test.groups is None


def test_a_table_names_the_groups_of_images(photos: Path) -> None:
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    table = pd.DataFrame({"image": names, "photographer": [f"P {name.split('/')[1][0]}" for name in names]})
    table.to_csv(photos / "who.csv", index=False)
    by_table = image_folder("photos", size=8, groups="who.csv")
    by_pattern = image_folder("photos", size=8, groups="{class}/{group}_*.png")
    assert by_table.fingerprint == by_pattern.fingerprint
    table[1:].to_csv(photos / "who.csv", index=False)
    with pytest.raises(UserError, match=r"1 are not in it: gull/a_0.png"):
        image_folder("photos", size=8, groups="who.csv")
    pd.concat([table, table[:1]]).to_csv(photos / "who.csv", index=False)
    with pytest.raises(UserError, match=r"each image once, got 'gull/a_0.png,P a'"):
        image_folder("photos", size=8, groups="who.csv")
    with pytest.raises(MissingDataError, match=r"there is no .*whom.csv"):
        image_folder("photos", size=8, groups="whom.csv")


def test_groups_of_folders_of_ones_own_must_be_apart(photos: Path) -> None:
    (photos / "train").mkdir()
    for name in ("gull", "owl", "wren"):
        (photos / "test" / name).mkdir(parents=True)
        (photos / name / "h_22.png").rename(photos / "test" / name / "h_22.png")
        (photos / name).rename(photos / "train" / name)
    with pytest.raises(UserError, match=r"1 groups are in (train|validation) and in test"):
        image_folder("photos", size=8, groups="{class}/{group}_*")
    data = image_folder("photos", size=8, groups="{class}/{group}_*", whole_groups=False)
    assert groups_of(data)["test"] == {7}


@pytest.mark.parametrize(
    ("pattern", "named"), [("{class}/*.png", "{group}"), ("{class}/{group}-*", r"72 of 72 .*: gull/a_0\.png")]
)
def test_patterns_that_find_no_group_are_refused(pattern: str, named: str, photos: Path) -> None:
    with pytest.raises(UserError, match=named):
        image_folder("photos", size=8, groups=pattern)


def test_patterns_take_names_as_they_are() -> None:
    assert matched("{class}/{group}.*", ["a+b/x.y.png", "c/x..jpg"]) == ["x", "x"]
    assert matched("*/p({group})_*", ["a/p(1)_2.png"]) == ["1"]


@pytest.mark.parametrize("seed", range(5))
def test_splits_of_whole_groups_are_near_their_fractions(seed: int) -> None:
    """Groups of 1 to 9 samples of mostly one class: of every class each split gets close to what it asks for."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 10, 300)
    groups = torch.from_numpy(np.repeat(np.arange(300), sizes))
    own = torch.from_numpy(rng.integers(0, 5, 300))[groups]
    labels = torch.where(torch.from_numpy(rng.random(len(groups)) < 0.8), own, 4 - own)
    parts = split_whole_groups(labels, groups, (0.2, 0.1), Generator().manual_seed(seed))
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))
    held = [set(groups[rows].tolist()) for rows in parts]
    assert not (held[0] & held[1] or held[0] & held[2] or held[1] & held[2])
    for rows, share in zip(parts, (0.7, 0.2, 0.1), strict=True):
        result = torch.bincount(labels[rows], minlength=5) / torch.bincount(labels)
        assert (result - share).abs().max() < 0.05


def test_a_class_of_few_groups_gives_each_split_one() -> None:
    labels = torch.tensor([0] * 9 + [1] * 40)
    groups = torch.tensor([0] * 4 + [1] * 3 + [2] * 2 + [*range(3, 43)])
    parts = split_whole_groups(labels, groups, (0.1, 0.1), Generator().manual_seed(0))
    assert [len(set(groups[rows][labels[rows] == 0].tolist())) for rows in parts] == [1, 1, 1]
    with pytest.raises(UserError, match=r"each of the 3 splits .* too few groups: class 'owl' has 2"):
        split_whole_groups(labels[4:], groups[4:], (0.1, 0.1), Generator().manual_seed(0), ("owl", "gull"))


def test_arrays_take_their_groups_as_a_third() -> None:
    inputs, labels = torch.randn(120, 3, generator=Generator().manual_seed(0)), torch.arange(120) % 3
    texts = [f"patient {n // 6}" for n in range(120)]
    data = from_tensors((inputs, labels, texts), groups="patients")
    assert data.groups == "patients" and apart(data)
    columns = from_tensors((inputs, labels, pd.Series(texts)), groups="patients")
    assert apart(from_tensors((inputs, labels, np.arange(120) // 6)))
    assert columns.fingerprint == data.fingerprint
    given = from_tensors((inputs, labels, [f"a{t}" for t in texts]), 0.2, (inputs, labels, texts))
    assert groups_of(given)["test"] == set(range(20, 40)) and given.groups == "groups"


@pytest.mark.parametrize(
    ("parts", "options", "named"),
    [
        (lambda x, y, who: ((x, y, who), (x[:3], y[:3]), (x, y, who)), {}, "20 groups .* train and in test"),
        (lambda x, y, who: ((x, y, who[:6]),), {}, "groups .*got 6"),
        (lambda x, y, _: ((x, y),), {"groups": "patients"}, "groups .*'patients'"),
    ],
)
def test_groups_that_do_not_fit_are_refused(parts: Any, options: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        from_tensors(*parts(torch.zeros(120, 3), torch.arange(120) % 3, torch.arange(120) // 6), **options)


def test_groups_of_the_test_split_alone_change_no_fingerprint() -> None:
    split = Split(torch.zeros(6, 2), torch.arange(6) % 3)
    grouped = split.grouped(torch.arange(6) // 3)
    plain = Dataset(split, split, split, 3)
    assert Dataset(split, split, grouped, 3, groups="typefaces").fingerprint == plain.fingerprint
    assert Dataset(grouped, split, split, 3).fingerprint != plain.fingerprint
    assert grouped.fingerprint == split.fingerprint
    kept = grouped.take(torch.tensor([5, 0])).to("cpu").groups
    assert kept is not None and kept.tolist() == [1, 0]


def grouped_data() -> Dataset:
    """30 groups of 12 training samples each, four of every class."""
    labels = torch.arange(360) % 3
    split = Split(torch.arange(360.0)[:, None], labels, torch.arange(360) // 12)
    return Dataset(split, split, split, 3)


def conditioned(condition: Condition, seed: int = 0) -> Split:
    return apply_conditions(grouped_data(), (condition,), lambda _role: Generator().manual_seed(seed)).train


def numbers(groups: Tensor | None) -> set[int]:
    assert groups is not None
    return set(groups.tolist())


def test_conditions_keep_groups_whole() -> None:
    third = conditioned(TrainFraction(1 / 3, whole_groups=True))
    assert len(third) == 120 and len(numbers(third.groups)) == 10
    fifty = conditioned(PerClass(8, whole_groups=True))
    assert torch.bincount(fifty.labels).tolist() == [8, 8, 8] and len(numbers(fifty.groups)) == 2
    more = conditioned(PerClass(10, whole_groups=True))
    assert len(numbers(more.groups)) == 3
    assert set(fifty.tensor[:, 0].tolist()) < set(more.tensor[:, 0].tolist())
    assert numbers(conditioned(PerClass(8, whole_groups=True), 1).groups) != numbers(fifty.groups)


def test_conditions_without_groups_say_so() -> None:
    for condition in (PerClass(2, whole_groups=True), TrainFraction(0.5, whole_groups=True)):
        with pytest.raises(UserError, match="the training split has none"):
            apply_conditions(letters(), (condition,), lambda _role: Generator())
    alone = Split(torch.zeros(6, 1), torch.arange(6) % 3, torch.arange(6) % 3)
    data, third = Dataset(alone, alone, alone, 3), TrainFraction(0.3, whole_groups=True)
    with pytest.raises(UserError, match=r"2 classes without a training image"):
        apply_conditions(data, (third,), lambda _role: Generator())
