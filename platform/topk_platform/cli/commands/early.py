"""The table of ``topk status`` about stopping trials early."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from topk_platform.protocol import early_correlations
from topk_platform.records import ArmHistory

__all__ = ["early_table"]


def early_table(histories: Iterable[ArmHistory]) -> Table | None:
    """Return a table of how well early validation predicts final validation, by arm; None if too few trials have ended.

    Args:
        histories: The trials that count, with their curves.
    """
    rows = [row for history in histories if history.search and (row := _row(history)) is not None]
    if not rows:
        return None
    table = Table(
        "arm",
        "completed",
        "after epoch: rank correlation",
        title="early and final validation of completed search trials (Spearman; 1: stopping early loses nothing)",
        title_justify="left",
    )
    for row in sorted(rows):
        table.add_row(*row)
    return table


def _row(history: ArmHistory) -> tuple[str, str, str] | None:
    """Return the row of an arm; None if no epoch has a correlation yet."""
    ended = list(history.ended().values())
    correlations = {epoch: value for epoch, (_, value) in early_correlations(history.arm, ended).items()}
    if all(value is None for value in correlations.values()):
        return None
    texts = (f"{epoch}: {'–' if value is None else f'{value:.2f}'}" for epoch, value in correlations.items())
    return history.arm.name, str(sum(trial.status == "completed" for trial in ended)), ", ".join(texts)
