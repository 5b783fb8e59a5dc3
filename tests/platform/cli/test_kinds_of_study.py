"""Every kind of study, with made-up results, goes through every command that reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from in_process import offer, topk
from made_studies import FIRST, RATE, searched, small_study

from topk_platform import (
    TPE,
    Choice,
    Claim,
    Contrast,
    Float,
    Grid,
    Int,
    LabelNoise,
    LongTail,
    Loss,
    NoPruning,
    PerClass,
    Protocol,
    Published,
    Random,
    Recipe,
    Regime,
    Schedule,
    Study,
)
from topk_platform.reports.catalogue import TABLE_FORMATS
from topk_platform.specs import Trial
from topk_platform.testing import fake_run

CE = searched()
SVM = Loss("smooth_topk_svm", {**RATE, "tau": Float(0.01, 10, log=True)}, {**FIRST, "tau": 1.0})
SAMPLES = {"samples": Choice((None, 1, 10)), "epsilon": Float(0.01, 10, log=True, when={"samples": (1, 10)})}
PHOTOS = {
    "of": "image_folder",
    "folder": "nowhere",
    "size": 64,
    "backbone": "efficientnet_lite0",
    "pixels": 64,
}
CLEAN, NOISY = Regime("clean", "digits"), Regime("noise-0.4", "digits", (LabelNoise(0.4),))


def a_study(*losses: Loss | str, **more: Any) -> Study:
    asked = {"regimes": (CLEAN,), "recipe": Recipe(4), "trials": 6, "seeds": 4, **more}
    return small_study(*(losses or (CE, SVM)), name="kind", **asked)


KINDS: Mapping[str, Study] = {
    "plain": a_study(),
    "inactive at first": a_study(CE, Loss("noised_topk_hinge", SAMPLES, {"samples": None})),
    "active at first": a_study(CE, Loss("noised_topk_hinge", SAMPLES, {"samples": 1, "epsilon": 0.2})),
    "conditions searched twice": a_study(
        CE, Loss("noised_topk_hinge", SAMPLES, {"samples": None}), protocol=Protocol(searches=2)
    ),
    "several searches": a_study(
        regimes=(CLEAN, NOISY), trials=9, seeds=6, equivalence=1.0, protocol=Protocol(Random(), searches=3)
    ),
    "no baseline": a_study(SVM, searched("topk_hinge")),
    "one loss": a_study(CE),
    "nothing searched": a_study("cross_entropy", "topk_hinge"),
    "some losses searched": a_study(CE, "topk_hinge", protocol=Protocol(searches=2)),
    "grid": a_study(protocol=Protocol(Grid(2), pruner=NoPruning())),
    "ensembles": a_study(protocol=Protocol(TPE(random=2), ensemble=3, width=3)),
    "whole numbers and choices": a_study(
        CE,
        Loss(
            "smooth_topk_svm",
            {"batch_size": Int(16, 64, log=True), "optimizer": Choice(("sgd", "adam"))},
            {"batch_size": 32, "optimizer": "sgd"},
            label="svm",
        ),
    ),
    "schedules": a_study(
        CE,
        Loss(
            "smooth_topk_svm",
            {"shape": Choice(("constant", "cosine")), "end": Float(0.01, 1, when={"shape": ("cosine",)})},
            {"shape": "constant"},
            {"tau": Schedule("shape", 1.0, "end")},
        ),
    ),
    "few images": a_study(regimes=(Regime("few", "digits", (PerClass(8),)),), metric="macro_top3"),
    "long tails": a_study(regimes=tuple(Regime(f"tail-{x}", "digits", (LongTail(x),)) for x in (5, 20))),
    "several networks": a_study(models=("mlp", "linear")),
    "networks and regimes": a_study(regimes=(CLEAN, NOISY), models=("mlp", "linear")),
    "transfer": a_study(regimes=(Regime("photos", "image_features", options=PHOTOS),), models=("linear",)),
    "kept weights": a_study(recipe=Recipe(4, keep=("top3", "top1"))),
    "other measures": a_study(
        measures=("nll", "ece", "size95"), show=("top3", "size95", "nll"), targets=(0.95, 0.99)
    ),
    "only seeds": a_study(interval="seeds"),
    "one seed": a_study(seeds=1, trials=1),
    "published": a_study(
        published=[
            Published(regime="clean", loss="cross_entropy", metric="top3", value=90.0, source="a paper")
        ]
    ),
    "claims": a_study(
        claims=[
            Claim(
                name="ahead",
                text="The SVM is ahead.",
                source="a paper",
                contrasts=[Contrast.between("clean/mlp/smooth_topk_svm", "clean/mlp/cross_entropy", "top3")],
            )
        ]
    ),
}
"""The kinds of study by what is special about them."""

REFUSED = {"nothing searched": "none of the arms is searched", "transfer": "its data cannot be read"}
"""A part of the line by which a command refuses a kind."""


def score(trial: Trial) -> float:
    return 0.5 + 0.01 * trial.number % 0.2 + 0.001 * (trial.seed % 7) + 0.02 * len(trial.arm.loss.label) % 0.1


@pytest.fixture
def read_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Read a study in the store ``runs`` by every command, in every format; the page has every plot."""

    def read(study: Study, refused: str = "") -> None:
        offer(monkeypatch, "kinds", study=study)
        monkeypatch.chdir(tmp_path)
        for command in (*READING, *(["table kinds:study --claims"] if study.claims else [])):
            name, *words = command.split()
            code, _, err = topk(name, *words)
            assert code == 0 or (refused and refused in err), (command, err)

    return read


READING = (
    *(f"table kinds:study --format {output}" for output in TABLE_FORMATS),
    *("table kinds:study --json", "table kinds:study --by class", "status", "status kinds:study --json"),
    *("report kinds:study", "report kinds:study --format md", "plot kinds:study search"),
    *("export kinds:study --format csv --to f.csv", "export kinds:study --format findings --to f.json.gz"),
    "export kinds:study --format optuna --to f.log",
)


def diverging(trial: Trial) -> float:
    """A loss whose search has no result, and a seed that diverged."""
    lost = trial.arm.loss.label != "cross_entropy" or trial.seed == 2
    return math.nan if lost else 0.5 + trial.number / 100


CASES: list[tuple[str, Callable[[Trial], float], int | None]] = [
    *((kind, score, None) for kind in KINDS),
    ("plain", diverging, None),
    ("plain", lambda _trial: 0.5, None),
    *(("inactive at first", score, ended) for ended in (0, 3, 9)),
]
"""Kinds of study, with what a trial is scored, and how many trials end; None for all."""
QUICK = (CASES[list(KINDS).index("conditions searched twice")],)
"""What every run of the tests reads; it takes some seconds."""


@pytest.mark.parametrize(
    ("kind", "scored", "ended"),
    [pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_every_kind_of_study_can_be_read(
    kind: str,
    scored: Callable[[Trial], float],
    ended: int | None,
    read_all: Callable[..., None],
    tmp_path: Path,
) -> None:
    fake_run(KINDS[kind], tmp_path / "runs", scored, stop_after=ended)
    read_all(KINDS[kind], REFUSED.get(kind, "topk: " if ended is not None else ""))
