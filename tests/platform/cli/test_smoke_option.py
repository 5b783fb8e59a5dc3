"""``--smoke`` means a study's smoke run in every command that takes a study, and finds what that run left."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_process import offer, topk
from made_studies import small_study
from trained_studies import train_study

from topk_platform import Study
from topk_platform.cli.app import COMMANDS, load_command

WITHOUT = {"new", "list", "nearest", "replay", "ui", "predict", "merge"}


def made() -> Study:
    return small_study(name="quick", models=["linear"], k=2, seeds=2)


def test_every_command_on_one_study_has_it() -> None:
    having = {name for name in COMMANDS if any("--smoke" in p.opts for p in load_command(name).params)}
    assert having == COMMANDS.keys() - WITHOUT


@pytest.mark.slow
def test_what_a_smoke_run_left_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_study(made().smoke(), tmp_path / "runs")
    offer(monkeypatch, "quick_lab", made=made)
    monkeypatch.chdir(tmp_path)
    for command, code, said in (
        ("status quick --smoke", 0, "quick-smoke: 2 trials ended"),
        ("status quick_lab:made --smoke", 0, "quick-smoke: 2 trials ended"),
        ("status --smoke", 2, "--smoke is for one study: name it"),
        ("repair quick --smoke", 0, "nothing is damaged"),
        ("repair quick_lab:made --smoke", 0, "nothing is damaged"),
        ("repair quick_lab:mode --smoke", 2, "did you mean 'made'? (known: made)"),
        ("sync quick_lab:made --smoke --mlflow sqlite:///mlflow.db", 0, "has all of quick-smoke"),
        ("repair quick-smoke --smoke", 0, "nothing is damaged"),
        ("table quick_lab:made --claims --smoke", 2, "study quick-smoke has no claims: a smoke run has none"),
        ("table quick_lab:made --smoke --format csv", 0, "cross_entropy"),
    ):
        ended, *printed = topk(*command.split())
        assert (ended, said in "".join(printed)) == (code, True), (command, printed)
