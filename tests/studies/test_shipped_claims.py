"""The shipped findings: each can be read, and those of studies that can be run are findings of these definitions."""

from __future__ import annotations

import json

from shipped import shipped

from topk_platform import Study
from topk_platform.loss_catalogue import LOSS_CATALOGUE
from topk_platform.reports import plots
from topk_platform.reports.result_tables import to_latex, to_markdown
from topk_studies import STUDIES


def without_words(study: Study) -> dict[str, object]:
    """A study as it is run: neither its description, nor its claims and published numbers, nor what limits a run."""
    data = json.loads(study.to_json())
    return {
        name: data[name] for name in ("name", "arms", "topk", "show", "seed", "threads", "device", "baseline")
    }


def test_all_are_read_and_every_claim_has_a_verdict() -> None:
    assert len(shipped()) == 28
    for findings in shipped():
        assert findings.table.cells
        assert [decision.claim for decision in findings.decisions()] == list(findings.study.claims)


def test_findings_of_a_study_are_of_its_definition() -> None:
    """Arms may have joined a study whose others have run, or left it."""
    defined = {name: without_words(STUDIES[name]()) for name in STUDIES}
    for findings in shipped():
        study = without_words(findings.study)
        if (today := defined.get(findings.study.name)) is None:
            continue
        assert {**study, "arms": ()} == {**today, "arms": ()}
        both = [arm for arm in study["arms"] if arm in today["arms"]]  # type: ignore[union-attr, operator]
        assert len(both) >= 0.8 * len(study["arms"]), findings.study.name  # type: ignore[arg-type]


def test_a_loss_that_is_in_no_catalogue_any_more_is_tabled_and_plotted() -> None:
    """By its plain name, in a colour of its own."""
    (findings,) = (result for result in shipped() if result.study.name == "letters_noise_losses")
    assert "mean_absolute_error" not in LOSS_CATALOGUE
    assert "mean_absolute_error" in to_markdown(findings.table)
    assert r"mean\_absolute\_error &" in to_latex(findings.table)
    data = plots.plotted(findings.table)
    assert b"absolute" in plots.written(plots.draw("differences", data), "svg")
