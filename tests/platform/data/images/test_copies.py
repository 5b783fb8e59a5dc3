"""Equal images: found exactly, refused or left out across splits, kept together by splits that are dealt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_photos import Read, by_both_readers, write_photos

from topk_platform import UserError
from topk_platform.data import from_tensors
from topk_platform.data.dataset import Split
from topk_platform.data.images.copies import same_images, united


@pytest.fixture
def photos(data_path: Path) -> Path:
    return write_photos(data_path / "mine", ("ant", "bee", "cod"), 12)


def in_splits(photos: Path) -> Path:
    """Move the photos 08 to 11 of each class into a split of their own."""
    for name in ("ant", "bee", "cod"):
        (photos / "test" / name).mkdir(parents=True)
        for number in range(8, 12):
            shutil.move(photos / name / f"{number:03}.png", photos / "test" / name)
        shutil.move(photos / name, photos / "train" / name)
    return photos


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=40))
def test_equal_numbers_are_equal_images(rows: list[list[int]]) -> None:
    images = torch.tensor(rows, dtype=torch.uint8).reshape(-1, 1, 2, 2)
    labels = torch.zeros(len(images), dtype=torch.int64)
    numbers = same_images({"train": Split(images, labels), "test": Split(images.flip(0), labels)})
    both = torch.cat([numbers["train"], numbers["test"]])
    pixels = torch.cat([images, images.flip(0)]).flatten(1)
    assert torch.equal(both[:, None] == both, (pixels[:, None] == pixels).all(2))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_groups_that_share_a_copy_are_one(pairs: list[tuple[int, int]]) -> None:
    """Against a slow rule: a number spreads to all that share a group or a copy, until nothing changes."""
    groups, copies = torch.tensor(pairs).unbind(1)
    slow = torch.arange(len(pairs))
    for _ in pairs:
        for same in (groups, copies):
            slow = torch.stack([slow[same == value].min() for value in same.tolist()])
    own = united(groups, copies)
    assert torch.equal(own[:, None] == own, slow[:, None] == slow)


@by_both_readers
def test_copies_across_splits_are_refused_or_left_out_of_training(photos: Path, read: Read) -> None:
    in_splits(photos)
    whole = read("mine", validation=0.2)
    for number in range(5):
        shutil.copy(photos / "test" / "ant" / "008.png", photos / "train" / "bee" / f"same{number}.png")
    message = r"copies: 5 of the 29 images of train are in test.*/same0\.png = test/ant/008\.png.* and 2 more.*--drop"
    with pytest.raises(UserError, match=message):
        read("mine", validation=0.2)
    data = read("mine", validation=0.2, copies="drop")
    assert len(data.train) + len(data.validation) == len(whole.train) + len(whole.validation)
    assert any("5 images left out of train" in note for note in data.notes)
    assert any("1 image also in another class" in note for note in data.notes)
    with pytest.raises(UserError, match="copies must be 'refuse' or 'drop'"):
        read("mine", copies="keep")


@by_both_readers
@pytest.mark.parametrize("groups", ["", "{class}/{group}_*"])
def test_splits_that_are_dealt_keep_copies_together(photos: Path, read: Read, groups: str) -> None:
    """Each photo three times, of other groups; without copies the splits are those of always."""
    for image in sorted(photos.glob("*/*.png")):
        for who in "xyz":
            shutil.copy(image, image.with_name(f"{who}{int(image.stem) % 4}_{image.name}"))
        image.rename(image.with_name(f"w{int(image.stem) % 4}_{image.name}"))
    data = read("mine", validation=0.2, test=0.2, groups=groups)
    numbers = same_images(data.splits)
    held = [set(part.tolist()) for part in numbers.values()]
    assert sum(map(len, held)) == len(set.union(*held)) == 36
    assert sum(map(len, data.splits.values())) == 144 and min(map(len, data.splits.values())) > 12
    if groups:
        of = [set(s.groups.tolist()) for s in data.splits.values() if s.groups is not None]
        assert not (of[0] & of[1] or of[0] & of[2] or of[1] & of[2])


def test_equal_rows_of_numbers_are_no_copies() -> None:
    pair = torch.zeros(40, 3), torch.arange(40) % 4
    data = from_tensors(pair, pair, pair)
    assert (len(data.train), data.notes) == (40, ())
