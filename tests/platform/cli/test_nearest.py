"""What was seen nearest, the rule, and one's own study before both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_process import topk
from shipped import shipped

import topk_studies
from topk_platform.cli.nearest import rule, seen
from topk_platform.results.findings_schema import Situation

NOISY = Situation(100, 45_000, 1.0, 0.8, 5)


@pytest.fixture(autouse=True)
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shipped, which takes a command a second to read."""
    monkeypatch.setattr(topk_studies, "evidence", shipped)


def test_the_nearest_is_what_was_asked_for_and_the_next_are_like_it() -> None:
    result = seen(NOISY, shipped())
    assert result[0].situation == NOISY and {"topk_transition"} < {m.loss for m in result[0].measured}
    others = [regime.situation for regime in result if regime.situation != NOISY]
    assert len(others) == len(set(others)) == 2
    assert all((other.noise, other.imbalance, other.k) == (0.8, 1.0, 5) for other in others)


def test_what_was_searched_once_was_not_seen() -> None:
    asked = [Situation(62, 3100, 1.0, noise, 5) for noise in (0.0, 0.4, 0.8)]
    names = {regime.name for situation in asked for regime in seen(situation, shipped())}
    assert names and not any(name.startswith("letters_once") for name in names)


@pytest.mark.parametrize(
    ("imbalance", "noise", "losses"), [(1, 0.0, 1), (1, 0.4, 1), (1, 0.8, 3), (100, 0.0, 2), (100, 0.8, 2)]
)
def test_the_rule_is_one_sentence(imbalance: float, noise: float, losses: int) -> None:
    sentence, named = rule(Situation(100, 45_000, imbalance, noise, 5))
    assert sentence.endswith(".") and len(named) == losses and named[0] == "cross_entropy"


def test_the_command_says_what_was_seen_then_the_rule_then_what_to_search() -> None:
    code, out, _ = topk("nearest", "--classes", "100", "--images", "450", "--noise", "0.8")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "Your data: 100 classes, 450 images of each, noise 0.8, K = 5."
    assert re.search(r"photos_\w+, linear\): topk_transition \+\d\.\d ± \d\.\d", lines[1])
    assert lines[-2].strip().startswith("Most labels wrong")
    assert lines[-1].endswith(": cross_entropy, smooth_topk_svm, soft_topk_loss, topk_transition.")


def test_ones_own_study_comes_first_by_its_own_marks(tmp_path: Path) -> None:
    (result,) = (findings for findings in shipped() if findings.study.name == "photos_tail")
    (tmp_path / "mine.json.gz").write_bytes(result.to_bytes())
    code, out, _ = topk("nearest", str(tmp_path / "mine.json.gz"))
    marked = {k for k, cell in result.table.cells.items() if cell.mark and k[2] == "macro_top5"}
    first = out.split("Your data")[0].splitlines()
    assert code == 0 and len(first) == len(marked) == 1
    assert "macro_top5, balanced_softmax +" in first[0] and "▲" in first[0]
    assert "(photos_tail" not in out


def test_without_a_study_or_its_numbers_the_error_says_what_to_give() -> None:
    code, _, err = topk("nearest", "--classes", "10")
    assert code == 2 and "give --classes and --images" in err
