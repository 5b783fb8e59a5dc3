"""Whatever a store's folder is called, its ledger is written, read, compacted and repaired there, or it is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import make_record as record
from made_records import make_study

from topk_platform.errors import StoreError, UserError
from topk_platform.records.ledger import Ledger
from topk_platform.records.repairing import repair
from topk_platform.records.storage.opened import Opened
from topk_platform.records.storage.store import Store

HOSTILE = " .%#?&=+;:,@~$!'\"`*<>(){}[]|^\\-_aZ09äé日\u0301\u202e\u00a0😀\t\n\x7f\x80"
REFUSED = re.compile(r"[][|^\\\t\n\x7f]|%[0-9a-fA-F]{2}")
NAMES = ("a[b", "a]", "a|b", "a^b", "a%20b", "a%2Fb", "a\\b", "a\tb", "a\nb", "a\x7f", "a\udcff", "a\0")


def check_used(folder: Path) -> None:
    """Use a store as runs do; whatever a library made of its name, all of it is in its own folder."""
    ledger, study = Ledger.open(Store.open(folder / "runs"), "s"), make_study()
    for number in range(2):
        with ledger.writing(study) as writer:
            writer.put(record(study, number))
            writer.put(record(study, number, seed=1))
            writer.flush()
            writer.table._compact(2**20)
    assert sorted(row["number"] for row in ledger.rows()) == [0, 0, 1, 1]
    part = next(path for path in Opened.of(ledger.store).parts if "kind=trials" in path)
    (folder / "runs" / "s" / "ledger" / part).write_bytes(b"")
    assert repair("s", folder / "runs").damaged == [f"ledger/{part}"]
    with ledger.writing(study) as writer:
        writer.put(record(study, 2))
    assert [row["number"] for row in ledger.rows()] == [2]


names = st.text(HOSTILE, min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@pytest.mark.slow
@given(name=names)
def test_a_hostile_name_is_a_name_or_is_refused(name: str) -> None:
    with TemporaryDirectory() as folder:
        location = Path(folder) / name
        if REFUSED.search(name):
            with pytest.raises(StoreError, match="its path contains"):
                Store.open(location)
            assert os.listdir(folder) == []
            return
        check_used(location)
        assert os.listdir(folder) == [name]


@pytest.mark.parametrize("name", NAMES)
def test_what_delta_lake_takes_for_something_else_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """Seen: `a%20b` used the ledger of `a b`, and `a[b` lost every result."""
    with pytest.raises(StoreError, match=r"cannot be used: its path contains .*: choose another --store$"):
        Store.open(f"{tmp_path}/{name}")
    if "\0" not in name and "/" not in name:
        (tmp_path / "real").mkdir()
        with pytest.raises(StoreError, match="its path contains"):
            Store.open(tmp_path / "real" / name / "runs")
    assert sorted(os.listdir(tmp_path)) in ([], ["real"])
    if name.isprintable():  # and so is a prefix of an object store
        with pytest.raises(StoreError, match="cannot be used"):
            Store.open(f"s3://bucket/{name}?region=eu")


def test_a_symbolic_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a[b").mkdir()
    (tmp_path / "sane").symlink_to(tmp_path / "a[b")
    with pytest.raises(StoreError, match=r"its path contains '\['"):
        Store.open(tmp_path / "sane")
    (tmp_path / "good").mkdir()
    (tmp_path / "x[y").symlink_to(tmp_path / "good")
    check_used(tmp_path / "x[y")


@pytest.mark.parametrize("name", ["", "a/b", "../s", "a b", "a[b]", "%2e", "a\nb"])
def test_a_study_of_no_possible_name_is_refused(name: str, tmp_path: Path) -> None:
    for call in (lambda: Ledger.open(Store.open(tmp_path), name), lambda: repair(name, tmp_path)):
        with pytest.raises(UserError, match="study must match"):
            call()  # type: ignore[no-untyped-call]
