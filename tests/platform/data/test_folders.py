"""Folders below a folder are found through links, and links in a circle end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topk_platform.data.folders import folders_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "b/inner", ".hidden"):
        (tmp_path / "top" / name).mkdir(parents=True)
        (tmp_path / "top" / name / "1.txt").touch()
    return tmp_path / "top"


def files_of(folder: Path) -> list[str]:
    return [
        Path(inner, name).relative_to(folder).as_posix()
        for inner, names in folders_below(folder)
        for name in names
    ]


def test_folders_come_in_order_without_hidden_ones(folder: Path) -> None:
    assert files_of(folder) == ["a/1.txt", "b/1.txt", "b/inner/1.txt"]


def test_a_link_to_a_folder_elsewhere_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "2.txt").touch()
    (folder / "a" / "link").symlink_to(tmp_path / "elsewhere")
    assert "a/link/2.txt" in files_of(folder)


def test_links_in_a_circle_are_followed_once(folder: Path) -> None:
    (folder / "a" / "up").symlink_to("..")
    (folder / "a" / "itself").symlink_to(".")
    (folder / "a" / "b").symlink_to("../b")
    (folder / "b" / "a").symlink_to("../a")
    assert files_of(folder) == [
        *("a/1.txt", "a/b/1.txt", "a/b/inner/1.txt", "b/1.txt", "b/a/1.txt", "b/inner/1.txt")
    ]


def test_a_broken_link_is_a_file_and_a_missing_folder_is_empty(folder: Path) -> None:
    (folder / "a" / "gone").symlink_to("nowhere")
    assert files_of(folder / "a") == ["1.txt", "gone"]
    assert list(folders_below(folder / "missing")) == []
    assert os.path.islink(folder / "a" / "gone")
