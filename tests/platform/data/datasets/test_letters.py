"""Letters: sizes, splits by family, look-alikes, and files of other characters."""

from __future__ import annotations

import csv
import dataclasses
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from topk_platform import LabelNoise, Model, Regime, UserError
from topk_platform.data import LOOK_ALIKES, Dataset, digits, letters, load
from topk_platform.testing import RegimeContract

FOLDER = Path(letters.__code__.co_filename).parent
FAMILIES = {"train": 150, "validation": 50, "test": 160}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return letters()


def families() -> list[dict[str, str]]:
    with (FOLDER / "letters.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_family_has_each_character_once(data: Dataset) -> None:
    assert "".join(data.names or ()) == "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    assert (data.shape, data.classes) == ((1, 28, 28), 62)
    for name, split in data.splits.items():
        assert torch.bincount(split.labels).tolist() == [FAMILIES[name]] * 62
        assert split.tensor.dtype == torch.uint8
        ink = split.tensor.flatten(1)
        assert ink.amax(1).min() > 127  # none is blank
        assert int(ink.amin(1).max()) == 0  # and each has ground


def test_the_bytes_are_the_same_everywhere(data: Dataset) -> None:
    """A change of the file changes every key: it must be seen."""
    assert data.fingerprint == "91d5d9703641fb043ff3"
    assert (FOLDER / "letters.npz").stat().st_size < 4e6


def test_each_character_fills_its_picture_but_for_the_margin(data: Dataset) -> None:
    ink = data.test.tensor[:, 0] > 0
    rows, columns = ink.any(2).sum(1), ink.any(1).sum(1)
    longer = torch.maximum(rows, columns)  # its ends may be too faint for the lowest of the sixteen levels
    assert 24 <= int(longer.max()) <= 25
    assert (longer >= 23).double().mean() > 0.98


def test_no_family_is_in_two_splits_and_all_are_free() -> None:
    rows = families()
    splits = defaultdict(set)
    for row in rows:
        splits[row["family"].casefold()].add(row["split"])
        assert row["licence"] and row["package"] and len(row["sha256"]) == 16
    assert [name for name, where in splits.items() if len(where) > 1] == []
    assert {name: sum(row["split"] == name for row in rows) for name in FAMILIES} == FAMILIES
    assert len({row["file"] + row["number"] for row in rows}) == sum(FAMILIES.values())


def test_no_family_is_another_ones_clone_or_in_another_split_than_its_kin(data: Dataset) -> None:
    """Ink that differs over ink that one has: 0.2 within a split, 0.23 between two, as the tool says."""
    parts = [split.tensor.reshape(-1, 62 * 28 * 28).float() for split in data.splits.values()]
    flat, where = torch.cat(parts), torch.tensor([0] * 150 + [1] * 50 + [2] * 160)
    squares = (flat**2).sum(1)
    apart = (squares[:, None] + squares - 2 * flat @ flat.T).clamp(min=0) / (squares[:, None] + squares)
    apart.fill_diagonal_(1)
    assert apart.min() > 0.199**2
    assert apart[where[:, None] != where].min() > 0.229**2


def test_every_character_has_one_group_of_look_alikes(data: Dataset) -> None:
    assert sorted("".join(LOOK_ALIKES)) == sorted(data.names or ())
    result = defaultdict(str)
    for name, group in zip(data.names or (), data.superclasses or (), strict=True):
        result[group] += name
    assert [sorted(result[group]) for group in range(12)] == [sorted(alike) for alike in LOOK_ALIKES]


def write(path: Path, characters: str = "ΑΒ", **changes: np.ndarray) -> None:
    images = np.arange(3 * len(characters) * 8, dtype=np.uint8).reshape(3, len(characters), 4, 2)
    content = {"images": images, "characters": np.array(list(characters)), **changes}
    np.savez_compressed(path, **{"split": np.arange(3, dtype=np.uint8), **content})


def test_another_file_of_the_tool_is_read_from_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    write(tmp_path / "greek.npz")
    greek = load(Regime("r", "letters", options={"file": "greek.npz"}))
    assert isinstance(greek, Dataset)
    assert (greek.names, greek.superclasses, greek.shape) == (("Α", "Β"), None, (1, 4, 4))
    assert greek.train.tensor[0, 0, :2].tolist() == [[0, 0, 0, 17], [0, 34, 0, 51]]
    assert greek.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize("content", [None, b"", b"no archive", "other", "array"])
def test_what_is_no_file_of_the_tool_is_refused(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    if content == "other":
        np.savez(tmp_path / "f.npz", images=np.zeros(3))
    elif content == "array":
        with (tmp_path / "f.npz").open("wb") as file:
            np.save(file, np.zeros(3))
    elif isinstance(content, bytes):
        (tmp_path / "f.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"dataset letters: file must be .*tools/make_letters.py.*f.npz"):
        load(Regime("r", "letters", options={"file": "f.npz"}))


@pytest.mark.parametrize("names", [("a",) * 10, ("a", "b"), tuple(range(10))])
def test_names_are_a_text_a_class(names: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"names must be a text per class \(10\), each once, got"):
        dataclasses.replace(digits(), names=names)


def test_names_are_no_part_of_the_fingerprint() -> None:
    named = dataclasses.replace(digits(), names=tuple("0123456789"))
    assert named.fingerprint == digits().fingerprint


class TestNoise(RegimeContract):
    regime = Regime("noise-0.8", "letters", (LabelNoise(0.8),))
    model = Model("mlp", {"hidden": 16})
