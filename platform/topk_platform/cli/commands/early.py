"""The table of ``topk status`` about stopping trials early."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from topk_platform.protocol import early_correlations
from topk_platform.records import ArmHistory

__all__ = ["early_table"]


def early_table(histories: Iterable[ArmHistory]) -> Table | None:
    """Return a table of how well early validation predicts final validation, by arm; None if no arm searches.

    Args:
        histories: The trials that count, with their curves.
    """
    searched = [history for history in histories if history.search]
    if not searched:
        return None
    table = Table(
        "arm",
        "completed",
        "after epoch: rank correlation",
        title="early and final validation of completed search trials (Spearman; 1: stopping early loses nothing)",
        title_justify="left",
    )
    for history in sorted(searched, key=lambda history: history.arm.name):
        ended = list(history.ended().values())
        correlations = early_correlations(history.arm, ended).items()
        texts = (f"{epoch}: {'–' if value is None else f'{value:.2f}'}" for epoch, (_, value) in correlations)
        completed = sum(trial.status == "completed" for trial in ended)
        table.add_row(history.arm.name, str(completed), ", ".join(texts) or "–")
    return table
