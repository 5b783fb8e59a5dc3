"""Stores of made-up results at the sizes that a large study has: many classes and test images, or many arms.

    python benchmarks/scale_stores.py classes /tmp/classes        # 2,965 classes, 100,810 test images
    python benchmarks/scale_stores.py arms /tmp/arms              # 20,000 arms, 60,000 confirmations
    PYTHONPATH=benchmarks topk table scale_studies:many_classes --store /tmp/classes

Nothing is trained: every trial gets a score from a formula, and every confirmation gets ranks and guesses that agree
with it. All else is as a run leaves it, so that every command that reads results can be tried.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from scale_studies import CLASSES, LOSSES, PER_CLASS, many_arms, many_classes
from torch import Tensor

from topk_platform import Arm, Study
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.per_image import to_parquet
from topk_platform.records.recorded import note_plan
from topk_platform.records.storage import delta
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import ledger_schema, ledger_table
from topk_platform.specs import Trial
from topk_platform.specs.codec import hashed
from topk_platform.testing import FAKE_DATA, fake_record, fake_run
from topk_platform.versions import versions_of

GROUPS = {
    "": slice(None),
    "macro_": slice(None),
    "many_": slice(0, None, 3),
    "medium_": slice(1, None, 3),
    "few_": slice(2, None, 3),
}
Numbers = npt.NDArray[np.int64]


def ranks_of(trial: Trial) -> Numbers:
    """Return made-up ranks ``(4, N)``: geometric, better for some losses, with a seed of the trial's own."""
    classes = int(str(trial.arm.regime.options["classes"]))
    label = np.repeat(np.arange(classes), PER_CLASS)
    draw = np.random.default_rng(hashed(trial.arm.name, trial.seed, "ranks"))
    scale = 4 + 2 * LOSSES.index(trial.arm.loss.name)
    rank = np.minimum(draw.exponential(scale, len(label)).astype(np.int64), classes - 1)
    return np.stack([rank, np.zeros_like(rank), label, 1 + label % 3])


def guesses_of(trial: Trial) -> Numbers:
    """Return made-up guesses ``(N, K)`` that agree with the ranks: the true class among look-alikes near it."""
    rank, _, label, _ = ranks_of(trial)
    classes, k = int(label.max()) + 1, trial.arm.k
    draw = np.random.default_rng(hashed(trial.arm.name, trial.seed, "guesses"))
    start = draw.integers(0, 5, (len(label), 1))
    guesses: Numbers = (label[:, None] + 1 + start + np.arange(k)) % classes
    right = rank < k
    guesses[right, rank[right]] = label[right]
    return guesses


def metrics_of(trial: Trial) -> dict[str, float]:
    """Return a trial's metrics: a confirmation's are those of its ranks."""
    if trial.phase == "search":
        return {trial.arm.metric: score_of(trial)}
    rank, _, label, _ = ranks_of(trial)
    metrics: dict[str, float] = {}
    for k in trial.topk:
        by_class = np.bincount(label, rank < k) / PER_CLASS
        metrics |= {f"{name}top{k}": float(by_class[part].mean()) for name, part in GROUPS.items()}
    return metrics


def score_of(trial: Trial) -> float:
    """Return a trial's accuracy: best near a learning rate of 0.1."""
    shift = 0.01 * (trial.seed % 5) + 0.002 * (len(trial.arm.name) % 7)
    return 0.6 + shift - 0.05 * abs(math.log10(float(str(trial.values["learning_rate"]))) + 1)


def _fill(study: Study, store: Path) -> None:
    """Write a search trial and the confirmations of every arm, all alike but for their numbers, at once."""
    codes = versions_of(study)
    template = study.arms[0]
    trial = Trial(
        study.name, "", template, study.topk, "confirm", 0, 1, 0, template.loss.first, FAKE_DATA, ""
    )
    record = fake_record(study, trial, 0.5)
    image_files = {
        "ranks": to_parquet(_few_ranks(), trial, "fake"),
        "guesses": to_parquet(_few_guesses(), trial, "fake"),
    }
    sums = {kind: hashlib.sha256(content).hexdigest() for kind, content in image_files.items()}
    record = dataclasses.replace(record, artifacts=sums, epochs=())
    schema = ledger_schema(study.metrics)
    (row,) = ledger_table([record], schema).to_pylist()
    rows = [_row(row, study, arm, codes, seed) for arm in study.arms for seed in range(study.seeds + 1)]
    identities = {arm_id: Identity(code, FAKE_DATA) for arm_id, code in codes.items()}
    ledger = Ledger.open(Store.open(store), study.name)
    with ledger.writing(study):
        ledger.identify(identities)
    delta.Writing(ledger.store, schema).append(pa.Table.from_pylist(rows, schema))
    note_plan(ledger.store, study)
    for kind, content in image_files.items():
        (store / study.name / kind).mkdir()
        for key in (row["key"] for row in rows if row["phase"] == "confirm"):
            (store / study.name / kind / f"{key}.parquet").write_bytes(content)


def _row(
    template: dict[str, Any], study: Study, arm: Arm, codes: dict[str, str], seed: int
) -> dict[str, Any]:
    """Return the row of an arm's search trial, seed 0, or of one of its confirmations."""
    arm_id = study.arm_id(arm)
    names = {"arm": arm.name, "arm_id": arm_id, "regime": arm.regime.name, "loss": arm.loss.label}
    facts = {"code_version": codes[arm_id], "key": f"{arm_id}{seed:04d}", "seed": seed}
    if not seed:
        facts |= {
            "phase": "search",
            "artifacts": None,
            **{f"test.{metric}": None for metric in study.metrics},
        }
    return {**template, **names, **facts}


def _few_ranks() -> dict[str, Tensor]:
    """Return the ranks of a hundred images of ten classes, right in half of the cases."""
    label = torch.arange(100) % 10
    rank = 5 * (torch.arange(100) // 50)
    return {"greater": rank, "tied": 0 * rank, "label": label, "group": 0 * rank}


def _few_guesses() -> dict[str, Tensor]:
    label, wrong = torch.arange(100) % 10, 5 * (torch.arange(100) // 50)
    return {f"guess{number}": (label + wrong + number - 1) % 10 for number in (1, 2, 3)}


def make(kind: str, store: Path, size: int | None) -> Study:
    """Write a store of this kind and return its study."""
    if kind == "classes":
        study = many_classes(size or CLASSES)
        fake_run(
            study,
            store,
            metrics_of,
            ranks=lambda trial: torch.from_numpy(ranks_of(trial)),
            guesses=lambda trial: torch.from_numpy(guesses_of(trial)),
        )
    else:
        study = many_arms(size or 20_000)
        _fill(study, store)
    return study


def main() -> None:
    """Write a store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("classes", "arms"))
    parser.add_argument("store", type=Path)
    parser.add_argument("--size", type=int, help="how many classes, or how many arms")
    options = parser.parse_args()
    began = time.perf_counter()
    study = make(options.kind, options.store, options.size)
    print(f"{study.name}: {len(study.arms)} arms in {time.perf_counter() - began:.0f} s, {options.store}")


if __name__ == "__main__":
    main()
