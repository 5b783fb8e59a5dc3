"""A study's results in each format for people: a whole example of each, and what holds of all."""

from __future__ import annotations

import dataclasses
import re

import pytest
from made_histories import make_gains_table
from made_studies import searched, small_study
from rich.console import Console

from topk_platform.reports.catalogue import TABLE_FORMATS, as_format
from topk_platform.reports.result_tables import to_latex, to_rich
from topk_platform.results import Table

REGIMES, LOSSES = ("clean", "long-tail"), ("cross_entropy", "ldam")
GAINS = {("ldam", "clean"): 0.004, ("ldam", "long-tail"): 0.1}


def a_table(covers: str = "searches, seeds and images") -> Table:
    asked = {"topk": (3,), "seeds": 5, "trials": 8, "equivalence": 1.0}
    study = small_study(*map(searched, LOSSES), regimes=REGIMES, models=["linear"], **asked)
    return make_gains_table(study, GAINS, covers=covers, test_images={"clean": (450, "test images")})


ON_TERMINAL = """\
In top-3 accuracy, better than cross_entropy: in long-tail, ldam by 10.0 ± 1.0
points. If you must choose now, take the highest mean, which may be chance: ldam
in clean.
K = 3; 5 seeds; one search of 8 trials of 1 epoch, the best on validation data
is tested; 450 test images.

top-3 accuracy, %
loss                   mean, %   to cross_entropy   mark
────────────────────────────────────────────────────────
clean
  cross_entropy     70.0 ± 1.0
  ldam            * 70.4 ± 1.0         +0.4 ± 1.0
long-tail
  cross_entropy     70.0 ± 1.0
  ldam            * 80.0 ± 1.0        +10.0 ± 1.0   ▲

Mean over seeds ± half its 95 % interval, over searches, seeds and test images;
*: the best mean.
▲▼: better or worse than cross_entropy, p < 0.05 after Holm's correction for 2
differences; △▽: in a metric that selected nothing; ≈: equal to it within 1
point.
Page: topk report s
MLflow: topk ui
"""


def test_the_terminal_has_the_answer_first_and_what_is_common_once() -> None:
    console = Console(width=80, color_system=None)
    with console.capture() as written:
        console.print(to_rich(a_table()))
    assert "".join(f"{line.rstrip()}\n" for line in written.get().splitlines()) == ON_TERMINAL


def test_a_caption_has_the_conditions_and_no_command() -> None:
    latex = to_latex(a_table("seeds and images, one search"))
    (caption,) = re.findall(r"\\caption\{(.*)\}", latex)
    assert caption == (
        r"s: test top-3 accuracy, \%. K = 3; 5 seeds; one search of 8 trials of 1 epoch, the best on validation data "
        r"is tested; 450 test images. Mean over seeds~$\pm$~half its 95 \% interval, over seeds and test images (not "
        r"the luck of the one search); bold: the best mean."
    )
    assert "topk " not in latex and "`" not in latex


@pytest.mark.parametrize("output", TABLE_FORMATS)
def test_findings_have_no_command_that_needs_a_store(output: str) -> None:
    table = dataclasses.replace(a_table("seeds, one search"), stored=False)
    text = str(table) if output == "rich" else str(as_format(output, table))
    assert "`topk" not in text and "topk report" not in text
