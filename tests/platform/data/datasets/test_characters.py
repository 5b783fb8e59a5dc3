"""Letters and Chinese characters of free typefaces."""

from __future__ import annotations

import csv
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from topk_platform import LabelNoise, Model, Regime, UserError
from topk_platform.data import LOOK_ALIKES, Dataset, digits, kanji, letters, load
from topk_platform.data.datasets.characters import look_alikes
from topk_platform.testing import RegimeContract

FOLDER = Path(letters.__code__.co_filename).parent
TOOLS = Path(__file__).parents[4] / "tools"


@dataclass(frozen=True)
class Typefaces:
    """What a data set of typefaces has; of two families, the ink that differs over ink that one has is at least so."""

    make: Callable[[], Dataset]
    classes: int
    families: Mapping[str, int]
    fingerprint: str
    megabytes: int
    within: float
    between: float
    every: int = 1

    @property
    def rows(self) -> list[dict[str, str]]:
        with (FOLDER / f"{self.make.__name__}.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


LETTERS = Typefaces(
    letters, 62, {"train": 150, "validation": 50, "test": 160}, "91d5d9703641fb043ff3", 4, 0.199, 0.229
)
KANJI = Typefaces(
    kanji,
    2965,
    {"train": 16, "validation": 6, "test": 13},
    "4ce0405898ed4537e603",
    16,
    0.249,
    0.299,
    every=20,
)
both = pytest.mark.parametrize("of", [LETTERS, KANJI], ids=["letters", "kanji"])
made = cache(lambda make: make())


@both
def test_each_family_has_each_character_once(of: Typefaces) -> None:
    data = made(of.make)
    assert (data.shape, data.classes) == ((1, 28, 28), of.classes)
    for name, split in data.splits.items():
        assert torch.bincount(split.labels).tolist() == [of.families[name]] * of.classes
        assert split.tensor.dtype == torch.uint8
        assert split.tensor.flatten(1).amax(1).min() > 127  # none is blank
        if split.groups is not None:
            assert torch.bincount(split.groups).tolist() == [of.classes] * of.families[name]


@both
def test_the_bytes_are_the_same_everywhere(of: Typefaces) -> None:
    """A change of the file changes every key: it must be seen."""
    assert made(of.make).fingerprint == of.fingerprint
    assert (FOLDER / f"{of.make.__name__}.npz").stat().st_size < of.megabytes * 1e6


@both
def test_no_family_is_in_two_splits_and_all_are_free(of: Typefaces) -> None:
    splits = defaultdict(set)
    for row in of.rows:
        splits[row["family"].casefold()].add(row["split"])
        assert row["licence"] and row["package"] and len(row["sha256"]) == 16
    assert [name for name, where in splits.items() if len(where) > 1] == []
    assert Counter(row["split"] for row in of.rows) == of.families
    assert len({row["file"] + row["number"] for row in of.rows}) == sum(of.families.values())


@both
def test_no_family_is_another_ones_clone_or_in_another_split_than_its_kin(of: Typefaces) -> None:
    splits = made(of.make).splits.values()
    parts = [s.tensor.unflatten(0, (-1, of.classes))[:, :: of.every].flatten(1).float() for s in splits]
    flat, where = torch.cat(parts), torch.arange(3).repeat_interleave(torch.tensor([*of.families.values()]))
    squares = (flat**2).sum(1)
    apart = (squares[:, None] + squares - 2 * flat @ flat.T).clamp(min=0) / (squares[:, None] + squares)
    apart.fill_diagonal_(1)
    assert apart.min() > of.within**2
    assert apart[where[:, None] != where].min() > of.between**2


def test_letters_are_on_ground_and_in_their_order() -> None:
    data = made(letters)
    assert data.test.fingerprint == "10258b7b5c3a9b93fe0f"  # which per-image results name
    assert "".join(data.names) == "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    assert int(torch.cat([split.tensor for split in data.splits.values()]).flatten(1).amin(1).max()) == 0


def test_every_character_has_one_group_of_look_alikes() -> None:
    data = made(letters)
    assert sorted("".join(LOOK_ALIKES)) == sorted(data.names or ())
    result = defaultdict(str)
    for name, group in zip(data.names or (), data.superclasses or (), strict=True):
        result[group] += name
    assert [sorted(result[group]) for group in range(12)] == [sorted(alike) for alike in LOOK_ALIKES]


def write(path: Path, characters: str = "ΑΒ", **changes: np.ndarray) -> None:
    images = np.arange(3 * len(characters) * 8, dtype=np.uint8).reshape(3, len(characters), 4, 2)
    content = {"images": images, "characters": np.array(list(characters)), **changes}
    np.savez_compressed(path, **{"split": np.arange(3, dtype=np.uint8), **content})


def test_another_file_of_the_tool_is_read_from_the_data_folder(data_path: Path) -> None:
    write(data_path / "greek.npz")
    greek = load(Regime("r", "letters", options={"file": "greek.npz"}))
    assert isinstance(greek, Dataset)
    assert (greek.names, greek.superclasses, greek.shape) == (("Α", "Β"), None, (1, 4, 4))
    assert greek.train.tensor[0, 0, :2].tolist() == [[0, 0, 0, 17], [0, 34, 0, 51]]
    assert greek.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize("content", [None, b"", b"no archive", "other", "array"])
def test_what_is_no_file_of_the_tool_is_refused(content: bytes | str | None, data_path: Path) -> None:
    path = data_path / "f.npz"
    if content == "other":
        np.savez(path, images=np.zeros(3))
    elif content == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"dataset letters: file must be .*tools/make_letters.py.*f.npz"):
        load(Regime("r", "letters", options={"file": "f.npz"}))


def test_names_are_no_part_of_the_fingerprint() -> None:
    named = dataclasses.replace(digits(), names=tuple("0123456789"))
    assert named.fingerprint == digits().fingerprint


def test_the_classes_are_the_standards_first_level_in_the_order_of_the_list() -> None:
    data = made(kanji)
    rows = [bytes([0xA0 + row, cell]) for row in range(16, 48) for cell in range(0xA1, 0xFF)]
    standard = {cell.decode("euc_jp", errors="ignore") for cell in rows} - {""}
    assert set(data.names or ()) == standard
    assert "".join(data.names or ()) == "".join((TOOLS / "kanji.txt").read_text().split())
    assert (data.names or ())[:3] == ("年", "日", "月")


@pytest.mark.slow
def test_fewer_classes_are_the_most_frequent_ones() -> None:
    data = made(kanji)
    few = kanji(classes=62)
    assert few.names == (data.names or ())[:62]
    for name, split in few.splits.items():
        whole = data.splits[name]
        kept = whole.labels < 62
        assert torch.equal(split.tensor, whole.tensor[kept])
        assert torch.equal(split.labels, whole.labels[kept])
        assert whole.groups is not None and torch.equal(split.groups, whole.groups[kept])  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [4, -5, 2966])
def test_other_numbers_of_classes_are_refused(classes: int) -> None:
    with pytest.raises(UserError, match=f"classes must be 5 to 2965, got {classes}"):
        load(Regime("r", "kanji", options={"classes": classes}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "sizes"), [(62, {5: 10, 6: 2}), (1006, {5: 200, 6: 1}), (2965, {5: 593})]
)
def test_look_alikes_are_groups_of_five(classes: int, sizes: dict[int, int]) -> None:
    groups = made(kanji).superclasses if classes == 2965 else kanji(classes).superclasses
    assert Counter(Counter(groups).values()) == sizes


def test_look_alikes_are_those_whose_pictures_are_near() -> None:
    """Ten classes in two typefaces: a dark and a light cloud of five are the two groups."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 20, (2, 10, 1, 4, 4), generator=generator)
    dark = torch.tensor([0, 1, 0, 1, 1, 0, 0, 1, 0, 1])
    pictures = (noise + 200 * dark[None, :, None, None, None]).to(torch.uint8)
    groups = torch.tensor(look_alikes(pictures))
    assert groups.unique().tolist() == [0, 1]
    assert torch.equal(groups == groups[0], dark == dark[0])


@pytest.mark.slow
class TestNoisyKanji(RegimeContract):
    regime = Regime("noise-0.8", "kanji", (LabelNoise(0.8),), options={"classes": 100})
    model = Model("mlp", {"hidden": 16})


class TestNoisyLetters(RegimeContract):
    regime = Regime("noise-0.8", "letters", (LabelNoise(0.8),))
    model = Model("mlp", {"hidden": 16})
