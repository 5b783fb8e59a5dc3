"""Kanji: the characters and their order, splits by family, look-alikes, and fewer classes."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

from topk_platform import LabelNoise, Model, Regime, UserError
from topk_platform.data import Dataset, kanji, load
from topk_platform.data.datasets.kanji import look_alikes
from topk_platform.testing import RegimeContract

FOLDER = Path(kanji.__code__.co_filename).parent
TOOLS = Path(__file__).parents[4] / "tools"
FAMILIES = {"train": 16, "validation": 6, "test": 13}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return kanji()


def families() -> list[dict[str, str]]:
    with (FOLDER / "kanji.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_classes_are_the_standards_first_level_in_the_order_of_the_list(data: Dataset) -> None:
    rows = [bytes([0xA0 + row, cell]) for row in range(16, 48) for cell in range(0xA1, 0xFF)]
    standard = {cell.decode("euc_jp", errors="ignore") for cell in rows} - {""}
    assert set(data.names or ()) == standard
    assert "".join(data.names or ()) == "".join((TOOLS / "kanji.txt").read_text().split())
    assert (data.names or ())[:3] == ("年", "日", "月")


def test_each_family_has_each_character_once(data: Dataset) -> None:
    assert (data.shape, data.classes) == ((1, 28, 28), 2965)
    for name, split in data.splits.items():
        assert torch.bincount(split.labels).tolist() == [FAMILIES[name]] * 2965
        assert split.tensor.dtype == torch.uint8
        ink = split.tensor.flatten(1)
        assert ink.amax(1).min() > 127  # none is blank
        assert split.groups is not None
        assert torch.bincount(split.groups).tolist() == [2965] * FAMILIES[name]


def test_the_bytes_are_the_same_everywhere(data: Dataset) -> None:
    """A change of the file changes every key: it must be seen."""
    assert data.fingerprint == "4ce0405898ed4537e603"
    assert (FOLDER / "kanji.npz").stat().st_size < 16e6


def test_no_family_is_in_two_splits_and_all_are_free() -> None:
    rows = families()
    splits = defaultdict(set)
    for row in rows:
        splits[row["family"].casefold().split()[0]].add(row["split"])
        assert row["licence"] and row["package"] and len(row["sha256"]) == 16
    assert [name for name, where in splits.items() if len(where) > 1] == []
    assert {name: sum(row["split"] == name for row in rows) for name in FAMILIES} == FAMILIES


def test_no_family_is_another_ones_clone_or_in_another_split_than_its_kin(data: Dataset) -> None:
    """Ink that differs over ink that one has, on every twentieth character: 0.25 within a split, 0.3 between two."""
    parts = [
        split.tensor.unflatten(0, (-1, 2965))[:, ::20].flatten(1).float() for split in data.splits.values()
    ]
    flat, where = torch.cat(parts), torch.tensor([0] * 16 + [1] * 6 + [2] * 13)
    squares = (flat**2).sum(1)
    apart = (squares[:, None] + squares - 2 * flat @ flat.T).clamp(min=0) / (squares[:, None] + squares)
    apart.fill_diagonal_(1)
    assert apart.min() > 0.249**2
    assert apart[where[:, None] != where].min() > 0.299**2


@pytest.mark.slow
def test_fewer_classes_are_the_most_frequent_ones(data: Dataset) -> None:
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
def test_look_alikes_are_groups_of_five(classes: int, sizes: dict[int, int], data: Dataset) -> None:
    groups = data.superclasses if classes == 2965 else kanji(classes).superclasses
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
class TestNoise(RegimeContract):
    regime = Regime("noise-0.8", "kanji", (LabelNoise(0.8),), options={"classes": 100})
    model = Model("mlp", {"hidden": 16})
