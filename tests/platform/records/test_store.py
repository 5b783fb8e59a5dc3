from __future__ import annotations

import resource
from pathlib import Path

import pytest
from pyarrow import fs

from topk_platform.data import use_data_folder
from topk_platform.errors import StoreError, UserError
from topk_platform.records import Store


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "runs")
    store.write("a/b.bin", b"one")
    store.write("a/b.bin", b"two")
    assert store.read("a/b.bin") == b"two"
    (tmp_path / "runs" / "a" / "taken" / "inside").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written"):
        store.write("a/taken", b"three")
    assert [path.name for path in sorted((tmp_path / "runs" / "a").iterdir())] == ["b.bin", "taken"]


def test_object_stores_are_written_in_place() -> None:
    mock = fs._MockFileSystem()
    store = Store(mock, "bucket/runs", "mock://bucket/runs")
    store.write("trials/x.parquet", b"data")
    assert store.read("trials/x.parquet") == b"data"
    assert store.names("trials", ".parquet") == ["x.parquet"]
    assert store.folders() == ["trials"]
    assert store.local is None
    store.check_writable()
    assert store.names() == []
    store.delete("trials/x.parquet")
    store.delete("trials/x.parquet")
    assert not store.exists("trials/x.parquet")


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    Store.open(tmp_path / "a" / "b").check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_noticed_and_nothing_stays_on_it(tmp_path: Path) -> None:
    """A limit on the size of files stands for a disk with half a MiB left."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            Store.open(tmp_path / "runs").check_writable()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_blank_place_is_not_the_current_folder() -> None:
    for blank in ("", "  "):
        with pytest.raises(UserError, match=r"store must name a place, got .*: is a variable unset"):
            Store.open(blank)
        with pytest.raises(UserError, match="data must name a place"):
            use_data_folder(blank)


def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        Store.open(tmp_path / "file" / "runs").check_writable()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store.open("nosuch://bucket")


def test_its_address_holds_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.open("runs").at("digits")
    assert store.uri == "runs/digits"
    assert store.address == str(tmp_path / "runs" / "digits")
    assert Store(fs._MockFileSystem(), "bucket/runs", "mock://bucket/runs").address == "mock://bucket/runs"
