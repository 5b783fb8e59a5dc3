"""Whatever file of a study is damaged, it is named, what is sound is kept, and what was lost runs again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from damage import spoil
from deltalake import DeltaTable
from made_records import commit, filled
from made_records import make_record as record

from topk_platform import Study
from topk_platform.errors import StoreError
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.repairing import Repaired, repair
from topk_platform.records.storage import checksums, delta
from topk_platform.records.storage.opened import Opened
from topk_platform.records.storage.store import Store


@pytest.fixture
def ledger(tmp_path: Path, study: Study, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Three trials, each committed by itself."""
    template = tmp_path_factory.getbasetemp() / "three_trials"  # made once, for it takes a second
    if not template.exists():
        ledger = Ledger.open(Store.open(template), "s")
        for number in range(3):
            with ledger.writing(study) as writer:
                ledger.identify({study.arm_id(study.arms[0]): Identity("c", "f")})
                writer.put(record(study, number))
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Ledger.open(Store.open(tmp_path), "s")


def numbers(ledger: Ledger) -> list[int]:
    return sorted(row["number"] for row in ledger.rows())


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(f"s/ledger/{pattern}"), key=lambda path: path.stat().st_mtime_ns)


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / "s" / "ledger" / "_delta_log").glob("*.json"))


def check_usable(ledger: Ledger, study: Study) -> None:
    """Write and read a study as runs do."""
    before = numbers(ledger)
    filled(ledger.store.local.parent, study, record(study, 9), record(study, 9, seed=1))  # type: ignore[union-attr]
    assert numbers(ledger) == sorted([*before, 9, 9])
    assert set(ledger.read("epochs")["key"].to_pylist()) == set(ledger.keys())
    assert repair("s", ledger.store.local.parent) == Repaired()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["trials", "epochs"])
@pytest.mark.parametrize("how", ["empty", "a bit", "missing"])
def test_a_trial_with_a_damaged_part_runs_again(
    kind: str, how: str, tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    part = newest(tmp_path, f"kind={kind}/*.parquet")
    spoil(part, how)
    with pytest.raises(StoreError, match=rf"{part.name} is (damaged|missing); `topk repair s[^`]*`"):
        ledger.read(kind)  # type: ignore[arg-type]
    name = f"ledger/kind={kind}/{part.name}"
    files = ([], [name]) if how == "missing" else ([name], [])
    assert repair("s", tmp_path) == Repaired(
        *files, trials=int(kind == "epochs"), kept="damaged/ledger", sound=2
    )
    assert numbers(ledger) == [0, 1]
    assert (tmp_path / "s" / "damaged" / name).exists() == (how != "missing")
    check_usable(ledger, study)


@pytest.mark.parametrize("kind", ["trials", "epochs"])
@pytest.mark.parametrize("how", ["empty", "truncated", "no text", "missing"])
def test_a_damaged_part_without_checksums_is_named_and_does_not_pass_as_sound(
    kind: str, how: str, tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    """A driver was killed between its last commit and that commit's checksums."""
    sums = newest(tmp_path, "_checksums/*.json")
    before = sums.read_bytes()
    filled(tmp_path, study, record(study, 3))
    newest(tmp_path, "_checksums/*.json").unlink()
    sums.write_bytes(before)
    part = newest(tmp_path, f"kind={kind}/*.parquet")
    spoil(part, how)
    named = rf"{part.name} is (damaged|missing); `topk repair s[^`]*`"
    with pytest.raises(StoreError, match=named):
        ledger.read(kind)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match=named), ledger.writing(study):
        pass
    assert repair("s", tmp_path).sound == 3
    assert numbers(ledger) == [0, 1, 2]
    check_usable(ledger, study)


@pytest.mark.parametrize("how", ["empty", "a bit", "missing"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_log_loses_nothing(
    which: int, how: str, tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    before, log = ledger.rows(), log_files(tmp_path)[which]
    spoil(log, how)
    with pytest.raises(StoreError, match=f"ledger/_delta_log/{log.name} is "):
        ledger.rows()
    result = repair("s", tmp_path)
    assert [*result.damaged, *result.missing] == [f"ledger/_delta_log/{log.name}"]
    assert ledger.rows() == before
    check_usable(ledger, study)


@pytest.mark.slow
def test_what_was_deleted_stays_deleted_if_the_log_is_damaged(
    tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    with ledger.writing(study) as writer:
        writer.table.delete([record(study, 1).trial.key])
    whole = tmp_path / "s", tmp_path / "whole"
    shutil.copytree(*whole)
    for log in log_files(tmp_path):
        spoil(log, "zeroed")
        repair("s", tmp_path)
        assert numbers(ledger) == [0, 2], log.name
        shutil.rmtree(whole[0])
        shutil.copytree(*reversed(whole))


@pytest.mark.parametrize("how", ["empty", "missing"])
def test_a_table_of_which_neither_log_nor_checksums_can_be_read_is_set_aside(
    how: str, tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    """Nobody knows then which rows belong to it, so all trials run again."""
    parts = sorted(path.name for path in tmp_path.glob("s/ledger/kind=trials/*.parquet"))
    (sums,), log = tmp_path.glob("s/ledger/_checksums/*.json"), log_files(tmp_path)[-2]
    for file in (sums, log):
        spoil(file, how)
    with pytest.raises(StoreError, match=r"is (damaged|missing); `topk repair s[^`]*` keeps"):
        ledger.rows()
    result = repair("s", tmp_path)
    named = {name.removeprefix("ledger/") for name in (*result.damaged, *result.missing)}
    assert (result.kept, result.sound) == ("damaged/ledger", 0)
    gone = "_checksums" if how == "missing" else f"_checksums/{sums.name}"
    assert named == {gone, f"_delta_log/{log.name}"}
    assert sorted(path.name for path in tmp_path.glob("s/damaged/ledger/kind=trials/*.parquet")) == parts
    assert numbers(ledger) == []
    check_usable(ledger, study)


@pytest.mark.parametrize("how", ["empty", "a bit", "missing"])
@pytest.mark.parametrize("name", ["ledger.json", "identities.json", "ledger/_checksums"])
def test_what_a_study_has_besides_its_table_is_named_and_made_anew(
    name: str, how: str, tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    before, identity, noted = ledger.rows(), ledger.identity, ledger.identities()
    path = tmp_path / "s" / name
    file = next(path.iterdir()) if path.is_dir() else path
    spoil(file, how)
    with pytest.raises(StoreError, match=rf"{name}\S* is (damaged|missing); `topk repair s[^`]*` keeps"):
        _ = Ledger.open(Store.open(tmp_path), "s").identities(), ledger.rows()
    assert not repair("s", tmp_path).is_nothing
    assert ledger.rows() == before
    assert ledger.identities() == noted
    assert ledger.identity == identity
    check_usable(ledger, study)


@pytest.mark.parametrize("which", [2, -1])
def test_a_copy_of_an_old_commit_is_no_commit(which: int, tmp_path: Path, ledger: Ledger) -> None:
    logs, before = log_files(tmp_path), ledger.rows()
    copy = logs[-1].with_name(f"{len(logs):020d}.json")
    shutil.copyfile(logs[which], copy)
    with pytest.raises(StoreError, match=f"{copy.name} is damaged"):
        ledger.rows()
    repair("s", tmp_path)
    assert ledger.rows() == before


def test_a_commit_that_was_killed_before_its_checksums_counts(
    tmp_path: Path, ledger: Ledger, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        with ledger.writing(study) as writer:
            monkeypatch.setattr(checksums.Checksums, "write", Mock(side_effect=Killed))
            commit(writer.table, record(study, 3))

    with pytest.raises(Killed):
        write()
    monkeypatch.undo()
    assert numbers(ledger) == [0, 1, 2, 3]
    assert repair("s", tmp_path) == Repaired()
    check_usable(ledger, study)


@pytest.mark.slow
def test_checksums_stay_true_through_compaction_checkpoints_and_deletion(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "CHECKPOINT_INTERVAL", 5)
    monkeypatch.setitem(delta._CONFIGURATION, "delta.checkpointInterval", "5")
    monkeypatch.setattr(delta, "_COMMITS", 4)
    ledger = Ledger.open(Store.open(tmp_path), "s")
    with ledger.writing(study) as writer:
        for number in range(13):
            commit(writer.table, record(study, number))
            writer.table.compact()
            assert numbers(ledger) == list(range(number + 1))
        assert len(Opened.of(ledger.store).table.file_uris()) < 13  # of 26 that were written
        writer.table.delete([record(study, 2).trial.key])
        sums = Opened.of(ledger.store).sums
    assert sums is not None
    assert repair("s", tmp_path) == Repaired()
    for name in sums.log:
        path = tmp_path / "s" / "ledger" / name
        whole = path.read_bytes()
        spoil(path, "truncated")
        with pytest.raises(StoreError, match=f"ledger/{name} is damaged"):
            ledger.rows()
        path.write_bytes(whole)
    assert any(name.endswith(".parquet") for name in sums.log)


@pytest.fixture
def checkpointed(tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch) -> tuple[Ledger, int]:
    """A store as a process leaves it that is killed between its second checkpoint and the checksums of it."""
    monkeypatch.setattr(checksums, "CHECKPOINT_INTERVAL", 5)
    monkeypatch.setitem(delta._CONFIGURATION, "delta.checkpointInterval", "5")
    written, left, number = tmp_path / "written", tmp_path / "left", 0
    folder, sums = written / "s" / "ledger", tmp_path / "sums"
    with Ledger.open(Store.open(written), "s").writing(study) as writer:
        while len([*folder.glob("_delta_log/*.checkpoint.parquet")]) < 2:
            shutil.rmtree(sums, ignore_errors=True)
            shutil.copytree(folder / "_checksums", sums)
            commit(writer.table, record(study, number))
            number += 1
        shutil.copytree(written, left, ignore=shutil.ignore_patterns("lease"))
    shutil.rmtree(left / "s" / "ledger" / "_checksums")
    shutil.copytree(sums, left / "s" / "ledger" / "_checksums")
    return Ledger.open(Store.open(left), "s"), number


def test_a_kill_between_a_checkpoint_and_its_checksums_loses_nothing(
    checkpointed: tuple[Ledger, int],
) -> None:
    ledger, count = checkpointed
    assert numbers(ledger) == list(range(count))


def test_without_checksums_a_log_may_begin_at_a_checkpoint(
    checkpointed: tuple[Ledger, int], tmp_path: Path
) -> None:
    """Delta Lake deletes commits that are older than a day when it makes a checkpoint."""
    ledger, count = checkpointed
    folder = tmp_path / "left" / "s" / "ledger"
    shutil.rmtree(folder / "_checksums")
    last = max(folder.glob("_delta_log/*.checkpoint.parquet")).name.partition(".")[0]
    for path in folder.glob("_delta_log/0*.json"):
        if path.stem < last:
            path.unlink()
    repair("s", tmp_path / "left")
    assert numbers(ledger) == list(range(count))


def test_a_damaged_part_is_not_compacted_into_a_sound_one(
    tmp_path: Path, ledger: Ledger, study: Study, caplog: pytest.LogCaptureFixture
) -> None:
    with ledger.writing(study) as writer:
        part = newest(tmp_path, "kind=trials/*.parquet")
        spoil(part, "a bit")
        writer._tidy(lambda: writer.table._compact(2**27))
    assert f"ledger/kind=trials/{part.name}" in caplog.text
    repair("s", tmp_path)
    assert numbers(ledger) == [0, 1]


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_a_repair_that_is_killed_at_any_step_loses_nothing(
    tmp_path: Path, ledger: Ledger, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(newest(tmp_path, "kind=epochs/*.parquet"), "truncated")
    spoil(tmp_path / "s" / "identities.json", "truncated")
    spoil(tmp_path / "s" / "ledger.json", "truncated")
    whole = tmp_path / "s", tmp_path / "whole"
    shutil.copytree(*whole)
    steps = 0
    for step, is_killed in steps_of(monkeypatch):
        with suppress(Killed):
            repair("s", tmp_path)
        step.undo()
        steps += 1
        if not is_killed():
            break
        repair("s", tmp_path)
        assert numbers(ledger) == [0, 1], f"after step {steps}"
        assert ledger.identities().keys() == {study.arm_id(study.arms[0])}
        assert repair("s", tmp_path) == Repaired()
        assert not (tmp_path / "s" / "ledger").exists()
        shutil.rmtree(whole[0])
        shutil.copytree(*reversed(whole))
    assert steps > 15


def steps_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[pytest.MonkeyPatch, Callable[[], bool]]]:
    """Yield patches by which a process is killed before its n-th change of the store, and whether it was."""
    for at in range(1000):
        done = [0]

        def counted(call: Callable[..., Any], done: list[int] = done, at: int = at) -> Callable[..., Any]:
            def one(*arguments: Any, **keywords: Any) -> Any:
                done[0] += 1
                if done[0] > at:
                    raise Killed
                return call(*arguments, **keywords)

            return one

        with monkeypatch.context() as patch:
            for owner, name in (
                *((Store, name) for name in ("write", "create", "move", "delete_folder")),
                *((DeltaTable, "create"), (delta, "write_deltalake")),
            ):
                patch.setattr(owner, name, counted(getattr(owner, name)))
            yield patch, lambda done=done, at=at: done[0] > at  # type: ignore[misc]


def test_files_of_something_else_stop_nothing_and_are_set_aside(
    tmp_path: Path, ledger: Ledger, study: Study
) -> None:
    strays = ("lease/notes.json", "undone.json", "standing.json", "tables/trials.parquet")
    for name in strays:
        (tmp_path / "s" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "s" / name).write_text("[")
    assert numbers(ledger) == [0, 1, 2]
    filled(tmp_path, study, record(study, 3))
    assert repair("s", tmp_path).damaged == [*strays]
    check_usable(ledger, study)


def test_what_is_sound_is_left_alone(tmp_path: Path, ledger: Ledger) -> None:
    before = ledger.rows()
    assert repair("s", tmp_path) == Repaired()
    assert ledger.rows() == before
    with pytest.raises(StoreError, match="holds nothing of study 't'"):
        repair("t", tmp_path)


def test_a_mark_from_before_a_repair_leads_to_the_new_table(tmp_path: Path, ledger: Ledger) -> None:
    """As one that is put back from a backup; the table that it names is set aside."""
    mark = tmp_path / "s" / "ledger.json"
    old = mark.read_bytes()
    spoil(newest(tmp_path, "kind=trials/*.parquet"), "empty")
    repair("s", tmp_path)
    mark.write_bytes(old)
    with pytest.raises(StoreError, match=r"ledger/_delta_log is missing; `topk repair s[^`]*`"):
        ledger.rows()
    assert repair("s", tmp_path).made == ["ledger.json"]
    assert numbers(ledger) == [0, 1]


@pytest.mark.slow
def test_a_study_in_an_object_store_is_repaired_too(bucket: str, study: Study) -> None:
    ledger = Ledger.open(Store.open(bucket), "s")
    with ledger.writing(study) as writer:
        for number in range(2):
            commit(writer.table, record(study, number))
    opened = Opened.of(ledger.store)
    part = next(path for path in opened.parts if path.startswith("kind=trials/"))
    log = f"{opened.folder}/{checksums.log_name(1)}"
    for name in (f"{opened.folder}/{part}", log):
        ledger.store.write(name, b"")
    result = repair("s", bucket)
    assert sorted(result.damaged) == sorted([f"{opened.folder}/{part}", log])
    assert len(ledger.keys()) == 1
    assert ledger.store.exists(f"damaged/{log}")
    assert repair("s", bucket) == Repaired()
