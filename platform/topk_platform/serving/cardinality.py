"""Accuracy of selectors on a study's confirmed networks, against the mean number of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load
from torch import Tensor

from topk_platform.data import data_at
from topk_platform.errors import UserError
from topk_platform.metrics import topk_credit
from topk_platform.records import Row, SavedModel, read_model
from topk_platform.records.table.mark import command_of
from topk_platform.results.cardinality import CardinalityPoint, write_points
from topk_platform.results.confirmed_runs import runs_of_all
from topk_platform.results.from_store import Held, read
from topk_platform.serving.loading import assembled
from topk_platform.serving.package import Config
from topk_platform.serving.selecting import train_selectors
from topk_platform.specs import Arm, Study
from topk_platform.specs.checks import check
from topk_platform.training.process.state import restored_process
from topk_platform.training.setup import dataset_of
from topk_platform.trust import Trust

__all__ = ["PENALTIES", "cardinality"]

PENALTIES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""The default penalties λ; the paper's curves end at 0.01."""

_FIXED = range(1, 9)


def cardinality(
    study: Study,
    *,
    store: str | Path = "runs",
    penalties: Sequence[float] = PENALTIES,
    growth: str = "log",
    only: str | Sequence[str] | None = None,
    data: str | Path | None = None,
) -> list[CardinalityPoint]:
    """Train selectors on a study's confirmed networks, test them, and keep the points in the study's folder.

    Selectors are trained on the calibration samples if the study sets some aside, otherwise on the validation split.
    The confirmed networks do not change. The points are in ``tables/cardinality.parquet``; ``topk plot STUDY
    cardinality`` and the report draw them.

    Args:
        study: The study.
        store: Folder or URI of the results.
        penalties: The penalties λ, at least 0.
        growth: ``"log"`` or ``"linear"``, how the cost of a set grows with its size.
        only: A glob over the names of the arms, or several.
        data: The folder of datasets.

    Raises:
        UserError: if the store has no confirmed network of these arms, there is no penalty or one below 0, ``growth``
            is unknown, or the data are missing.
    """
    finite = bool(penalties) and all(0 <= penalty < math.inf for penalty in penalties)
    check(finite, f"penalties must be numbers of at least 0, got {list(penalties)}")
    check(growth in ("log", "linear"), f"growth must be log or linear, got {growth!r}")
    held = read(study, store, needed=True)
    arms = (study.only(only) if only else study).arms
    with data_at(data):
        points = [point for arm in arms for point in _of_arm(held, arm, penalties, growth)]
    if not points:
        run = partial(command_of, held.ledger.store, "run", reference=study.reference)
        raise UserError(
            f"store {str(store)!r} has no confirmed network of study {study.name}: `{run()}` confirms, and "
            f"`{run('--networks')}` trains lost networks again"
        )
    write_points(held.ledger.store, points)
    return points


def _of_arm(held: Held, arm: Arm, penalties: Sequence[float], growth: str) -> Iterator[CardinalityPoint]:
    runs = runs_of_all(held.study, held.results)[held.study.arm_id(arm)]
    trust = Trust.of_study(held.study)
    for row in runs.confirmations.values():
        saved = read_model(held.ledger.store, row) if row["status"] == "completed" else None
        if saved is not None:
            yield from _of_network(arm, row, saved, trust, penalties, growth)


def _of_network(
    arm: Arm, row: Row, saved: SavedModel, trust: Trust, penalties: Sequence[float], growth: str
) -> Iterator[CardinalityPoint]:
    dataset = dataset_of(saved.trial)
    network = assembled(Config.of(saved), load(saved.content), f"the network of trial {row['key']}", trust)
    known = dataset.validation if dataset.calibration is None else dataset.calibration
    with restored_process():
        torch.set_num_threads(1)  # more threads make such small networks slower
        selectors = train_selectors(
            network.scores_of(known), known.labels, penalties, growth, seed=row["seed"]
        )
    scores, labels = network.scores_of(dataset.test), dataset.test.labels

    def point(kind: str, value: float, sizes: Tensor) -> CardinalityPoint:
        distinct = sorted(set(sizes.tolist()))
        credit = topk_credit(scores, labels, distinct)
        hits = torch.stack([c * (sizes == k) for k, c in zip(distinct, credit, strict=True)]).sum(0)
        fixed = kind == "fixed"
        return CardinalityPoint(
            arm.name, row["key"], row["seed"], kind, float(value), "" if fixed else growth,
            sizes.double().mean().item(), hits.mean().item(), 0 if fixed else len(known), len(labels),
        )  # fmt: skip

    for k in _FIXED:
        if k <= dataset.classes:
            yield point("fixed", k, torch.full_like(labels, k))
    for penalty, sizes in zip(penalties, selectors.chosen(scores), strict=True):
        yield point("selected", penalty, sizes)
