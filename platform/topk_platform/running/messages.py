"""What the driver of a run and the process of a trial send each other through Ray Tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from topk_platform.specs import EpochRecord

__all__ = ["Order", "Report", "shown"]


class Order(TypedDict):
    """What a process trains, under ``order`` in Tune's configuration of a trial.

    ``trials`` are as JSON; ``recorded`` are the keys of those that have a record, such as some members of an ensemble.
    ``folder`` and ``data`` are the study's folder and the folder of datasets; ``share`` is a trial's part of a GPU.
    ``pause`` and the limits are in seconds; see :class:`~topk_platform.specs.Study` for the limits.
    """

    trials: list[str]
    recorded: list[str]
    pause: float
    folder: str
    data: str
    checkpoint_seconds: float
    time_limit: float
    start_limit: float
    report_seconds: float
    share: float
    measures: Mapping[str, str]


class Report(TypedDict, total=False):
    """What a process reports to the driver alone, in its messages to Tune beside ``done`` and the epoch's metrics.

    While a trial trains, ``kept`` is the step of its last checkpoint, and ``patience`` the seconds after which the
    process ends itself if it is silent. At the end there are its ``records``, as JSON, or why it was ``refused``, or a
    ``fault`` by the name of its class, and ``why``.
    """

    kept: int
    patience: float
    records: Sequence[str]
    refused: str
    fault: str
    why: str


def shown(epoch: EpochRecord | None) -> dict[str, float]:
    """Return an epoch's number and metrics by their names in Tune; nothing before the first.

    Example:
        >>> shown(EpochRecord(2, 0.5, {"top5": 0.75}, 1.0, 0.1))
        {'epoch': 2, 'train_loss': 0.5, 'learning_rate': 0.1, 'validation/top5': 0.75}
    """
    if epoch is None:
        return {}
    values = {"epoch": epoch.epoch, "train_loss": epoch.train_loss, "learning_rate": epoch.learning_rate}
    values |= {f"validation/{name}": value for name, value in epoch.validation.items()}
    return {name: value for name, value in values.items() if value is not None}
