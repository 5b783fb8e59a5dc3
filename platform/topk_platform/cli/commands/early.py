"""The table of ``topk status`` about stopping trials early."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from rich.table import Table

from topk_platform.protocol import early_correlations
from topk_platform.records import ArmHistory, Ledger, Row, add_curves
from topk_platform.specs import Arm, Trial

__all__ = ["early_table"]


def early_table(ledger: Ledger, rows: Sequence[Row]) -> Table | None:
    """Return a table of how well early validation predicts final validation, by arm; None if no arm searches.

    Args:
        ledger: The ledger that holds the epochs.
        rows: The trials that count.
    """
    histories: dict[str, ArmHistory] = {}
    for row in rows:
        if row["phase"] == "search":
            if row["arm_id"] not in histories and (arm := _arm(row)) is not None:
                histories[row["arm_id"]] = ArmHistory(arm)
            if row["arm_id"] in histories:
                histories[row["arm_id"]].search[row["number"]] = row
    if not histories:
        return None
    add_curves(ledger, histories)
    table = Table(
        "arm",
        "completed",
        "after epoch: rank correlation",
        title="early and final validation of completed search trials (Spearman; 1: stopping early loses nothing)",
        title_justify="left",
    )
    for history in sorted(histories.values(), key=lambda history: history.arm.name):
        ended = list(history.ended().values())
        correlations = early_correlations(history.arm, ended).items()
        texts = (f"{epoch}: {'–' if value is None else f'{value:.2f}'}" for epoch, (_, value) in correlations)
        completed = sum(trial.status == "completed" for trial in ended)
        table.add_row(history.arm.name, str(completed), ", ".join(texts) or "–")
    return table


def _arm(row: Row) -> Arm | None:
    """Return a row's arm, or None if an earlier version wrote it in another form."""
    with suppress(ValueError):
        return Trial.from_json(row["config"]).arm
    return None
