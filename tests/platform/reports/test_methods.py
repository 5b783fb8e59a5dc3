"""The section on methods tells what the ledger holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_histories import make_history
from made_studies import searched, small_study

from topk_platform import Float, Loss, Recipe
from topk_platform.records.ledger import Ledger
from topk_platform.records.run_notes import DataNote, Samples, note_data
from topk_platform.records.storage.store import Store
from topk_platform.reports.methods import methods
from topk_platform.reports.text_tables import markdown_parts
from topk_platform.results.from_store import Held

LINEAR = {"learning_rate": Float(0.01, 1.0)}
LOSSES = [replace(searched("cross_entropy"), space=LINEAR), searched("smooth_topk_svm")]


def held_of(losses: list[Loss], folder: Path, recipe: Recipe) -> Held:
    """A study with an arm for each loss, all of whose trials have ended."""
    study = small_study(*losses, name="light", models=["linear"], recipe=recipe, trials=2, seeds=3)
    histories = {study.arm_id(arm): make_history(study, arm, [0.5, 0.6, 0.7]) for arm in study.arms}
    return Held(study, Ledger(Store.open(folder).at("light"), "light"), histories)


def text_of(held: Held) -> str:
    return "\n".join(markdown_parts(methods(held)))


LINES = """\
| model linear | linear |
| recipe of 2 arms | Recipe(epochs=1, batch_size=64,
| cross_entropy | learning_rate | 0.01 to 1 | 0.1 |
| smooth_topk_svm | learning_rate | 0.01 to 1, logarithmic | 0.1 |
| budget | 1 search of 2 trials; in all: 4 of 4 completed, 0 stopped early, 0 diverged, 0 failed |
| selection | by top3 on the validation split alone
| test | 3 fresh seeds per arm, the same in all arms: 6 of 6 completed, 0 diverged, 0 failed |
| time of search | 4 trainings of 1.0 s, 0.00 hours
| r | digits | none | – | – | – | – | – | – | f |
| torch | 2.15.0 (10 trials) |
| code | c (10 trials) |"""


def test_they_say_what_the_ledger_knows(tmp_path: Path) -> None:
    text = text_of(held_of(LOSSES, tmp_path, Recipe(1)))
    assert [line for line in LINES.splitlines() if line not in text] == []


@pytest.mark.parametrize(
    ("samples", "line"),
    [
        (
            Samples("r", 1240, 3100, 9920, 62, 3, 6, groups="160 typefaces", wrong=0.3929),
            "| 62 | 1,240 | 3 to 6 | 39.3% | 3,100 | 9,920 of 160 typefaces | f |",
        ),
        # Of labels that no condition changed it is not known that none is wrong.
        (Samples("r", 9, 9, 9, 3, 3, 3), "| 3 | 9 | 3 | none added | 9 | 9 | f |"),
    ],
)
def test_numbers_of_samples_are_those_that_a_run_noted(tmp_path: Path, samples: Samples, line: str) -> None:
    note_data(
        Store.open(tmp_path).at("light"),
        {"r": DataNote(samples, notes=("2 images are in two splits",))},
    )
    text = text_of(held_of(LOSSES, tmp_path, Recipe(1)))
    assert f"| r | digits | none {line}" in text and "r: 2 images are in two splits." in text


def test_no_number_is_printed_with_all_its_digits(tmp_path: Path) -> None:
    """Ranges, first and fixed values, and the recipe: to three digits each."""
    long = 0.04520469449210724
    loss = Loss("focal", {"learning_rate": Float(long, 1)}, {"learning_rate": long}, fixed={"gamma": 2 / 3})
    text = text_of(held_of([loss], tmp_path, Recipe(1, weight_decay=1 / 7000)))
    assert "| focal | learning_rate | 0.0452 to 1 | 0.0452 |" in text and "weight_decay=0.000143" in text
    assert not re.search(r"\d\.\d{7}", text)
