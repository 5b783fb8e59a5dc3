"""Confirmations that lost a file: told plainly, refused where the file is read, and trained again to the same bits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driven import run_in_process
from in_process import offer, topk
from made_studies import small_study

from topk_platform import Recipe, plan, run
from topk_platform.identity import Identity
from topk_platform.records.files import KINDS, Kind, artifact_name, damaged_artifacts, missing_artifacts
from topk_platform.records.ledger import Ledger
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.rows import Row
from topk_platform.records.storage.store import Store
from topk_platform.running.counted import outdated
from topk_platform.specs import Trial, TrialRecord
from topk_platform.testing import fake_run
from topk_platform.training import finish, run_trials

STUDY = small_study("cross_entropy", "topk_hinge", name="lost", models=["linear"], seeds=3)
CONFIRMATIONS = 6
TABLES = ("table.csv", "seeds.csv", "table.md")


def train(trials: Sequence[Trial], store: Store) -> list[TrialRecord]:
    return finish(run_trials(trials, StoreKeeper(store, 1e9, ())))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder with a study's module, and neither Ray nor MLflow."""
    run_in_process(monkeypatch, train)
    offer(monkeypatch, "lab_of_losses", study=STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return {}


@pytest.fixture
def store(tmp_path: Path, undisturbed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the whole study, trained once."""
    if not undisturbed:
        folder = tmp_path_factory.mktemp("undisturbed")
        assert run(STUDY, store=folder, progress=False).ran == CONFIRMATIONS
        undisturbed["store"] = folder
    shutil.copytree(undisturbed["store"], tmp_path / "runs")
    return tmp_path / "runs"


def rows_of(store: Path) -> list[Row]:
    return Ledger.open(Store.open(store), "lost").rows("phase = 'confirm'")


def file_of(store: Path, kind: Kind, index: int = 0) -> Path:
    return store / "lost" / artifact_name(kind, rows_of(store)[index]["key"])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    content[-20] ^= 8
    path.write_bytes(content)


def tables(store: Path) -> list[str]:
    return [(store / "lost" / "tables" / name).read_text() for name in TABLES]


def plain(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows without times."""
    times = ("train_seconds", "started", "ended")
    return [{name: value for name, value in row.items() if name not in times} for row in rows]


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "damage"), [("ranks", Path.unlink), ("ranks", empty), ("guesses", flip)])
def test_the_next_run_trains_again_what_lost_its_ranks_or_guesses(
    kind: Kind, damage: Callable[[Path], None], store: Path, undisturbed: dict[str, Any]
) -> None:
    before, lost = tables(store), [file_of(store, kind, index) for index in (1, 4)]
    for path in lost:
        damage(path)
    assert plan(STUDY, store=store).left == 2
    said: list[str] = []
    summary = run(STUDY, store=store, progress=False, waiting=said.append)
    assert (summary.ran, summary.left) == (2, 0)
    (line,) = said
    assert line.startswith("2 confirmations are trained again: ") and line.endswith(" are gone or damaged")
    assert all(f"{kind}/{path.name}" in line for path in lost)
    assert tables(store) == before
    assert plain(rows_of(store)) == plain(rows_of(undisturbed["store"]))  # and so are all SHA-256
    opened = Store.open(store).at("lost")
    assert damaged_artifacts(opened, rows_of(store)) == missing_artifacts(opened, rows_of(store)) == []
    assert run(STUDY, store=store, progress=False, waiting=said.append).ran == 0 and len(said) == 1


def test_what_a_part_does_not_train_is_set_aside_and_reported(store: Path) -> None:
    lost = file_of(store, "ranks")
    flip(lost)
    loss = rows_of(store)[0]["loss"]
    other = "topk_hinge" if loss == "cross_entropy" else "cross_entropy"
    summary = run(STUDY, store=store, only=f"r/*/{other}", progress=False)
    assert summary.ran == 0 and not lost.exists()
    assert (store / "lost" / "damaged" / "ranks" / lost.name).exists()
    assert "Of 6 confirmations, 1 lack the ranks" in (store / "lost" / "tables" / "table.md").read_text()
    assert run(STUDY, store=store, progress=False).ran == 1 and lost.exists()


def test_until_then_the_table_and_the_status_say_how_many_lack_theirs(store: Path) -> None:
    for index in (0, 1, 2):
        file_of(store, "ranks", index).unlink()
    file_of(store, "network").unlink()
    message = "Of 6 confirmations, 3 lack the ranks of their test images"
    for output in ("rich", "md"):
        code, out, err = topk("table", "lab_of_losses:study", "--format", output)
        assert code == 0 and message in " ".join(out.split()) and not err
    for arguments in (("--format", "csv"), ("--json",)):
        code, _, err = topk("table", "lab_of_losses:study", *arguments)
        assert code == 0 and err.startswith(f"topk: {message}") and len(err.splitlines()) == 1
    code, out, _ = topk("status", "lost")
    ranks, networks = out.splitlines()[-2:]
    assert code == 0 and ranks.startswith("ranks or guesses: 3 ") and networks.startswith("networks: 1 ")
    _, out, _ = topk("status", "lost", "--json")
    assert json.loads(out)[0]["notes"][-2:] == [ranks, networks]


COMMANDS = {
    "ranks": ("table", "report", "plot topk", "export"),
    "guesses": ("plot guesses", "report"),
    "network": ("export",),
}


@pytest.mark.parametrize(("kind", "command"), [(kind, c) for kind in KINDS for c in COMMANDS[kind]])
def test_a_command_that_reads_a_damaged_file_is_one_line_that_names_it(
    kind: Kind, command: str, store: Path, tmp_path: Path
) -> None:
    for index in range(CONFIRMATIONS):
        flip(file_of(store, kind, index))
    name, *more = command.split()
    arm = rows_of(store)[0]["arm"]
    options = ("--arm", arm, "--to", "out") if name == "export" else ()
    code, _, err = topk(name, "lab_of_losses:study", *more, *options)
    (line,) = err.splitlines()
    assert code == 2
    assert f": {artifact_name(kind, 'KEY').partition('KEY')[0]}" in line
    assert "is damaged; `topk run" in line and "raised" not in line
    assert not (tmp_path / "out").exists()


def test_networks_are_trained_again_when_asked_for(store: Path, undisturbed: dict[str, Any]) -> None:
    file_of(store, "network", 0).unlink()
    flip(file_of(store, "network", 1))
    assert run(STUDY, store=store, progress=False).ran == 0
    said: list[str] = []
    assert run(STUDY, store=store, progress=False, networks=True, waiting=said.append).ran == 2
    assert said[0].startswith("2 confirmations are trained again: models/")
    assert plain(rows_of(store)) == plain(rows_of(undisturbed["store"]))
    assert damaged_artifacts(Store.open(store).at("lost"), rows_of(store)) == []


CODE = "engine 1, loss focal 1, network linear 2"
HERE = {"torch": "2.0"}


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        (Identity(CODE, "f", HERE), None),
        (Identity(CODE, "g"), "other data"),
        (Identity(CODE, "f", {"torch": "2.1"}), "torch 2.0 in place of 2.1"),
        (
            Identity("engine 1, loss focal 3, recipe average 1", "f"),
            "the code has changed: loss focal: version 1, now 3, network linear 2: gone, recipe average 1: new",
        ),
    ],
)
def test_why_recorded_trials_of_unfinished_arms_do_not_count(
    counted: Identity, why: str | None, tmp_path: Path
) -> None:
    identities = {STUDY.arm_id(arm): Identity(CODE, "f", HERE) for arm in STUDY.arms}
    ledger = fake_run(STUDY, tmp_path, lambda trial: 0.5, identities=identities)
    now = dict.fromkeys(identities, counted)
    lines = [f"6 recorded trials of r/linear/cross_entropy and 1 more: {why}"] if why else []
    assert outdated(STUDY, ledger, now, list(now)) == lines
    assert [line[:36] for line in outdated(STUDY, ledger, now, [*now][:1])] == [
        "3 recorded trials of r/linear/cross_"
    ] * len(lines)
    assert (
        outdated(STUDY, ledger, now, [])
        == outdated(STUDY, Ledger.open(Store.open(tmp_path / "new"), "s"), now, list(now))
        == []
    )


def test_trials_of_an_arm_that_has_changed_do_not_count(tmp_path: Path) -> None:
    identities = {STUDY.arm_id(arm): Identity(CODE, "f", HERE) for arm in STUDY.arms}
    ledger = fake_run(STUDY, tmp_path, lambda trial: 0.5, identities=identities)
    longer = replace(
        STUDY, arms=tuple(replace(arm, recipe=Recipe(arm.recipe.epochs + 1)) for arm in STUDY.arms)
    )
    now = {longer.arm_id(arm): Identity(CODE, "f", HERE) for arm in longer.arms}
    (line,) = outdated(longer, ledger, now, list(now))
    assert line == "6 recorded trials of r/linear/cross_entropy and 1 more: the study has changed"
