"""Results by class: numbers that are counted image by image, names, and the files and commands that have them."""

from __future__ import annotations

import csv
import io
import shutil
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from made_studies import small_study

from topk_platform import Study, UserError, table
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import read_all_ranks
from topk_platform.records.run_notes import DataNote, Samples, note_data
from topk_platform.records.storage.store import Store
from topk_platform.reports.claims_and_classes import class_tables, classes_as, classes_to_files
from topk_platform.results.by_class import ClassResult, class_results
from topk_platform.specs import Trial
from topk_platform.testing import fake_run

K = 2
LABELS = [0, 0, 0, 0, 1, 1, 2]
GUESSES = {
    1: [[0, 1], [1, 0], [1, 2], [2, 1], [1, 0], [0, 2], [2, 0]],
    2: [[0, 1], [0, 1], [1, 0], [1, 2], [1, 0], [2, 1], [0, 1]],  # class 1 is taken for 0 and for 2 as often
}


def a_study() -> Study:
    return small_study("cross_entropy", "focal", models=["linear"], k=K, seeds=2)


def guesses(trial: Trial) -> torch.Tensor:
    return torch.tensor(GUESSES[trial.seed])


def ranks(trial: Trial) -> torch.Tensor:
    rows = [
        guess.index(label) if label in guess else K
        for label, guess in zip(LABELS, GUESSES[trial.seed], strict=True)
    ]
    label = torch.tensor(LABELS)
    return torch.stack([torch.tensor(rows), label * 0, label, label * 0])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    fake_run(a_study(), folder, lambda _: 0.5, ranks=ranks, guesses=guesses)
    return folder


@pytest.fixture
def store(tmp_path: Path, written: Path) -> Path:
    """A copy, to which some tests add."""
    return Path(shutil.copytree(written, tmp_path, dirs_exist_ok=True))


def results(store: Path) -> list[ClassResult]:
    folder = Store.open(store).at("s")
    return list(class_results(table(a_study(), store=store), folder, partial(read_all_ranks, folder)))


def test_shares_are_those_of_counting_every_image(store: Path) -> None:
    rows = results(store)
    assert [(row.row, row.label) for row in rows] == [
        (loss, label) for loss in ("cross_entropy", "focal") for label in range(3)
    ]
    for row in rows:
        seen = [
            guess
            for seed in (1, 2)
            for label, guess in zip(LABELS, GUESSES[seed], strict=True)
            if label == row.label
        ]
        assert row.images == len(seen) / 2 and row.seeds == 2 and row.k == K
        assert row.top1 == pytest.approx(sum(guess[0] == row.label for guess in seen) / len(seen))
        assert row.topk == pytest.approx(sum(row.label in guess for guess in seen) / len(seen))
        wrong = [guess[0] for guess in seen if guess[0] != row.label]
        assert row.confused_with == max(sorted(set(wrong)), key=wrong.count)
        assert row.confused_share == pytest.approx(wrong.count(row.confused_with) / len(seen))


def test_names_are_those_that_the_run_noted(store: Path) -> None:
    assert [row.name for row in results(store)[:3]] == ["0", "1", "2"]
    note_data(Store.open(store).at("s"), {"r": DataNote(Samples("r", 9, 9, 7, 3, 3, 3), ("O", "Q", "o"))})
    first = results(store)[0]
    assert (first.name, first.confused_name) == ("O", "Q")


def test_all_formats_have_the_same_rows(store: Path) -> None:
    shown, rows = table(a_study(), store=store), results(store)
    written = pq.read_table(io.BytesIO(classes_to_files(shown, rows)["classes.parquet"])).to_pylist()
    read = list(csv.DictReader(io.StringIO(str(classes_as("csv", shown, rows)))))
    assert [{name: "" if v is None else str(v) for name, v in row.items()} for row in written] == read
    assert "| 2 | focal | 1 | 50.0 | 50.0 | 0 (50.0 %) |" in str(classes_as("md", shown, rows))


def test_the_hardest_classes_come_first_and_easier_ones_are_counted(store: Path) -> None:
    (part,) = class_tables(table(a_study(), store=store), results(store), most=4)
    assert [row[0] for row in part.rows] == [*"2200"]  # two of three classes, each with both losses
    assert "left out: 1" in part.note


def test_without_kept_ranks_there_is_an_error(tmp_path: Path, store: Path) -> None:
    for file in (store / "s" / "ranks").iterdir():
        file.unlink()
    assert results(store) == []
    with pytest.raises(UserError, match="there are no results by class"):
        classes_as("csv", table(a_study(), store=store), results(store))


def test_where_guesses_are_missing_the_share_is_of_the_runs_that_have_them(store: Path) -> None:
    """Seed 2 alone has guesses left; two of its four images of class 0 are taken for class 1."""
    for row in Ledger.open(Store.open(store), "s").rows("phase = 'confirm' and seed = 1"):
        (file,) = (store / "s" / "guesses").glob(f"{row['key']}*")
        file.unlink()
    first = results(store)[0]
    assert (first.label, first.seeds, first.top1) == (0, 2, 3 / 8)
    assert (first.confused_with, first.confused_share) == (1, 2 / 4)


def test_where_every_seed_draws_its_own_images_the_shares_are_of_all_of_them(tmp_path: Path) -> None:
    """Seed 1 has one image of class 0, right; seed 2 has three, one of them right."""
    study = small_study(models=["linear"], k=1, metric="top1", topk=(1, 2), seeds=2)
    drawn = {1: ([0, 1, 1, 1], [0, 1, 1, 1]), 2: ([0, 0, 0, 1], [0, 1, 1, 1])}

    def own(trial: Trial) -> torch.Tensor:
        label, guess = map(torch.tensor, drawn[trial.seed])
        return torch.stack([(label != guess).long(), label * 0, label, label * 0])

    fake_run(
        study, tmp_path, lambda _: 0.5, ranks=own, guesses=lambda t: torch.tensor(drawn[t.seed][1])[:, None]
    )
    folder = Ledger.open(Store.open(tmp_path), "s").store
    first, _ = class_results(table(study, store=tmp_path), folder, partial(read_all_ranks, folder))
    assert (first.top1, first.images, first.confused_share) == (0.5, 2, 0.5)
