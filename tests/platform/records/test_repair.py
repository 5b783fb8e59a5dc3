"""Whatever file of a ledger is damaged, it is named, set aside, and its trials run again; the others stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from topk_platform import Study
from topk_platform.errors import StoreError
from topk_platform.records import Ledger, Repaired, Store, repair
from topk_platform.specs import TrialRecord

Make = Callable[..., TrialRecord]


@pytest.fixture
def ledger(tmp_path: Path, study: Study, record: Make) -> Ledger:
    """Three trials, each committed by itself."""
    ledger = Ledger.open(Store.open(tmp_path), "s")
    for number in range(3):
        with ledger.writing(study) as writer:
            writer.put(record(study, number))
    return ledger


def newest(place: Path, pattern: str) -> Path:
    return max(place.glob(f"s/ledger/{pattern}"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("kind", ["trials", "epochs"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "turned over", "missing"])
def test_a_trial_with_a_damaged_part_runs_again(
    kind: str, damage: str, tmp_path: Path, ledger: Ledger
) -> None:
    part = newest(tmp_path, f"kind={kind}/*.parquet")
    content = part.read_bytes()
    left = {"empty": b"", "truncated": content[: len(content) // 2], "turned over": content[::-1]}
    part.write_bytes(left.get(damage, b""))
    if damage == "missing":
        part.unlink()
    with pytest.raises(StoreError, match=rf"{part.name} is damaged or missing; `topk repair` sets it aside"):
        ledger.read(kind)  # type: ignore[arg-type]
    name = f"ledger/kind={kind}/{part.name}"
    files = ((), (name,)) if damage == "missing" else ((name,), ())
    assert repair("s", tmp_path) == Repaired(*files, trials=int(kind == "epochs"))
    assert sorted(row["number"] for row in ledger.rows()) == [0, 1]
    assert set(ledger.read("epochs")["key"].to_pylist()) == set(ledger.keys())
    assert (tmp_path / "s" / "damaged" / name).exists() == (damage != "missing")
    assert repair("s", tmp_path) == Repaired((), (), 0)


def test_a_commit_that_a_power_cut_left_in_its_middle_is_as_if_it_had_not_been(
    tmp_path: Path, ledger: Ledger, study: Study, record: Make
) -> None:
    commit = newest(tmp_path, "_delta_log/*.json")
    commit.write_bytes(commit.read_bytes()[:-9])
    with pytest.raises(StoreError, match="cannot be read"):
        ledger.rows()
    assert repair("s", tmp_path).damaged == (f"ledger/_delta_log/{commit.name}",)
    assert sorted(row["number"] for row in ledger.rows()) == [0, 1]
    with ledger.writing(study) as writer:
        writer.put(record(study, 2))
    assert sorted(row["number"] for row in ledger.rows()) == [0, 1, 2]


def test_what_is_sound_is_left_alone(tmp_path: Path, ledger: Ledger) -> None:
    before = ledger.rows()
    assert repair("s", tmp_path) == Repaired((), (), 0)
    assert ledger.rows() == before
    with pytest.raises(StoreError, match="holds nothing of study 't'"):
        repair("t", tmp_path)
