"""A study that nobody trains leaves the ledger, files and tables that a trained one leaves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from made_studies import searched, small_study

from topk_platform import Protocol, Recipe, Study, UserError, report, table
from topk_platform.records.files import damaged_artifacts
from topk_platform.records.history import progress_of, read_history
from topk_platform.records.per_image import read_guesses, read_ranks
from topk_platform.records.storage.store import Store
from topk_platform.running.counted import in_environment
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial, TrialRecord
from topk_platform.testing import fake_record, fake_run
from topk_platform.training import environment

BEST = 0.4


def make_study(protocol: Protocol | None = None, trials: int = 12) -> Study:
    asked = {"recipe": Recipe(4), "protocol": protocol, "trials": trials, "seeds": 3}
    return small_study(searched(), "topk_hinge", name="fake", **asked)


def score(trial: Trial) -> float:
    return 0.9 - (trial.values.get("learning_rate", BEST) - BEST) ** 2


def test_a_run_that_stopped_goes_on_to_the_same_trials(tmp_path: Path) -> None:
    study = make_study(Protocol(ensemble=3, width=3))
    whole = fake_run(study, tmp_path / "whole", score).keys()
    scored: list[str] = []

    def noted(trial: Trial) -> float:
        scored.append(trial.key)
        return score(trial)

    for stop_after in (1, 4, 5, None, None):
        rest = fake_run(study, tmp_path / "parts", noted, stop_after=stop_after)
    assert sorted(rest.keys()) == sorted(whole) == sorted(scored)


def test_ranks_and_guesses_agree_with_the_test_metrics_and_with_one_another(tmp_path: Path) -> None:
    ledger = fake_run(make_study(), tmp_path, score)
    confirmed = ledger.rows("phase = 'confirm'")
    assert damaged_artifacts(ledger.store, confirmed) == []
    for row in confirmed:
        ranks, guesses = read_ranks(ledger.store, row), read_guesses(ledger.store, row)
        assert ranks is not None and guesses is not None
        for k in (1, 3):
            assert (ranks.greater < k).mean() == pytest.approx(row[f"test.top{k}"], abs=0.005)
            right = (guesses.classes[:, :k] == ranks.label[:, None]).any(1)
            assert (right == (ranks.greater < k)).all()


def test_a_score_that_is_not_finite_makes_a_trial_diverge(tmp_path: Path) -> None:
    ledger = fake_run(make_study(), tmp_path, lambda trial: math.nan if trial.number == 1 else score(trial))
    assert [row["number"] for row in ledger.rows("status = 'diverged'")] == [1]


def test_a_function_may_return_metrics_or_the_whole_record(tmp_path: Path) -> None:
    study = make_study(trials=3)

    def record(trial: Trial) -> TrialRecord:
        return fake_record(study, trial, {"top3": 0.5, "top1": 0.25})

    rows = fake_run(study, tmp_path / "records", record).rows()
    assert {(row["validation.top1"], row["validation.top3"]) for row in rows} == {(0.25, 0.5)}
    rows = fake_run(study, tmp_path / "metrics", lambda trial: {"top3": 0.5}).rows()
    assert all(row["validation.top1"] == pytest.approx(1 - 0.5 ** (1 / 3)) for row in rows)


def test_the_ranks_given_are_the_ranks_kept(tmp_path: Path) -> None:
    given = torch.tensor([[0, 4, 2], [0, 0, 0], [1, 2, 3], [0, 0, 0]])
    ledger = fake_run(make_study(), tmp_path, score, ranks=lambda trial: given)
    ranks = read_ranks(ledger.store, ledger.rows("phase = 'confirm'")[0])
    assert ranks is not None and ranks.greater.tolist() == [0, 4, 2]


def test_tables_and_reports_count_fake_results_and_a_real_run_does_not(tmp_path: Path) -> None:
    study = make_study()
    ledger = fake_run(study, tmp_path, score)
    result = table(study, store=tmp_path)
    assert (result.left, {cell.value.n for cell in result.cells.values() if cell.value}) == (0, {3})
    assert "90.00" in report(study, store=tmp_path)
    here = in_environment(study, check_study(study), environment("cpu"))
    assert progress_of(study, here, read_history(ledger, study, here)).left == study.size


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (1.5, "score must return accuracies between 0 and 1, got {'top3': 1.5}"),
        (
            {"top1": 0.5},
            "score must return top3, which selects in arm r/mlp/cross_entropy, got {'top1': 0.5}",
        ),
    ],
)
def test_a_score_that_cannot_be_is_refused(
    tmp_path: Path, given: float | dict[str, float], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        fake_run(make_study().only("*/cross_entropy"), tmp_path, lambda trial: given)
    assert str(caught.value) == message
    assert Store.open(tmp_path).at("fake").folders("ranks") == []
