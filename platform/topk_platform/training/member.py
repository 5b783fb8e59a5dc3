"""The state of one trial while it trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from topk_platform.specs import EpochRecord, Status, Trial

__all__ = ["KeptWeights", "Member", "Network", "metrics_of_kept"]


class KeptWeights(NamedTuple):
    """The weights of one epoch and its validation metrics."""

    epoch: int
    validation: dict[str, float]
    weights: dict[str, Tensor]


class Network(NamedTuple):
    """The network of a completed confirmation and what it said of the test split, which are to be stored.

    Args:
        weights: Its weights and buffers.
        ranks: The ranks of the test split, see :attr:`~topk_platform.training.scoring.Scored.ranks`.
        guesses: The arm's K classes of each test sample, see :meth:`~topk_platform.training.scoring.Scored.guesses`.
        images: The test split's fingerprint.
        cluster: The group of each test sample; None if the dataset has no groups.
        clusters: The name of these groups, such as "patients".
    """

    weights: dict[str, Tensor]
    ranks: Tensor
    guesses: Tensor
    images: str
    cluster: Tensor | None = None
    clusters: str = ""


@dataclass
class Member:
    """One trial's epochs, its best weights, its status and the reason for it, and what a confirmation leaves.

    Args:
        trial: The trial.
        epochs: The validated epochs.
        kept: The best weights so far by metric.
        status: How the trial ended; None while it trains.
        reason: Why it ended so.
        test: The metrics of the test split; None before it is scored.
        network: What of a completed confirmation is to be stored.
        artifacts: The SHA-256 of each file that was stored of it, by kind.
        missing: The reason why a file could not be stored, by kind.
        own: What the user's own measures gave, see :func:`topk_platform.own_measures.recorded`.
    """

    trial: Trial
    epochs: list[EpochRecord] = field(default_factory=list)
    kept: dict[str, KeptWeights] = field(default_factory=dict)
    status: Status | None = None
    reason: str = ""
    test: dict[str, float] | None = None
    network: Network | None = None
    artifacts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    own: str = ""

    @property
    def stopped(self) -> bool:
        """Whether no metric of ``Recipe.keep`` has improved in the last ``Recipe.patience`` validations."""
        patience = self.trial.arm.recipe.patience
        if patience is None or not self.kept:
            return False
        best = max(kept.epoch for kept in self.kept.values())
        return sum(epoch.epoch > best for epoch in self.epochs) >= patience

    @property
    def running(self) -> bool:
        """Whether the trial still trains."""
        return self.status is None and not self.stopped

    def complete(self) -> None:
        """Record that the trial has completed, with the reason if it stopped before the last epoch."""
        recipe = self.trial.arm.recipe
        early = self.stopped and self.epochs[-1].epoch < recipe.epochs
        why = f"{' and '.join(recipe.keep)} got no better in {recipe.patience} validations"
        self.end("completed", f"stopped after epoch {self.epochs[-1].epoch}: {why}" if early else "")

    def end(self, status: Status, reason: str = "") -> None:
        """Record the status with which the trial ended, and the reason."""
        self.status, self.reason = status, reason

    def note_loss(self, epoch: int, loss: float) -> None:
        """Record the trial as diverged if the loss is not finite."""
        if not math.isfinite(loss):
            self.end("diverged", f"the mean training loss of epoch {epoch} is {loss}")

    def note(self, epoch: EpochRecord, *, finite: bool) -> bool:
        """Record a validated epoch and prune the trial if it is behind; return False if the trial has ended.

        Args:
            epoch: The epoch.
            finite: Whether all scores on the validation split are finite.
        """
        if self.status is None and not finite:
            self.end("diverged", f"after epoch {epoch.epoch} a score on the validation split is not finite")
        if self.status is not None:
            return False
        self.epochs.append(epoch)
        metric = self.trial.arm.metric
        threshold = dict(self.trial.stop_below).get(epoch.epoch, -math.inf)
        if epoch.validation[metric] < threshold:
            self.end("pruned", f"{metric} below {threshold:.6g} after epoch {epoch.epoch}")
        return True

    def better(self) -> list[str]:
        """Return the metrics of ``Recipe.keep`` whose best value so far is that of the last epoch."""
        last = self.epochs[-1].validation
        metrics = self.trial.arm.recipe.keep
        return [
            m for m in metrics if m in last and (m not in self.kept or last[m] > self.kept[m].validation[m])
        ]

    def keep(self, metrics: Sequence[str], weights: dict[str, Tensor]) -> None:
        """Keep the last epoch's weights for these metrics."""
        last = self.epochs[-1]
        for metric in metrics:
            self.kept[metric] = KeptWeights(last.epoch, dict(last.validation), weights)

    def chosen(self) -> dict[str, KeptWeights]:
        """Return the kept weights by metric; the weights under ``""`` give all other metrics."""
        main = self.kept.get(self.trial.arm.metric) or next(iter(self.kept.values()))
        return {"": main, **self.kept}

    def validation(self) -> dict[str, float]:
        """Return the validation metrics of the weights that were kept, by default the last epoch's."""
        if not self.epochs:
            return {}
        if not self.kept:
            return dict(self.epochs[-1].validation)
        return metrics_of_kept({name: kept.validation for name, kept in self.chosen().items()})

    def state(self) -> dict[str, Any]:
        """Return the member as tensors and plain data."""
        return {
            "epochs": [vars(epoch) | {"validation": dict(epoch.validation)} for epoch in self.epochs],
            "kept": {name: tuple(kept) for name, kept in self.kept.items()},
            "status": self.status,
            "reason": self.reason,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        self.epochs = [EpochRecord(**epoch) for epoch in state["epochs"]]
        self.kept = {name: KeptWeights(*kept) for name, kept in state["kept"].items()}
        self.status, self.reason = state["status"], state["reason"]


def metrics_of_kept(metrics: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return each metric from the weights kept for it, and all others from the main weights, under ``""``."""
    return {name: metrics.get(name, metrics[""])[name] for name in metrics[""]}
