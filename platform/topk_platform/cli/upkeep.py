"""The commands that mend what was damaged, and catch up on what was missed."""

from __future__ import annotations

import typer

from topk_platform.cli.options import MlflowOption, RecordedArgument, StoreOption

__all__ = ["repair", "sync"]


def repair(
    study: RecordedArgument,
    store: StoreOption = "runs",
) -> None:
    """Set damaged files of a study's ledger aside, so that the trials in them run again."""
    from topk_platform.records import repair as repair_study  # noqa: PLC0415

    found = repair_study(study, store)
    for name in found.damaged:
        typer.echo(f"set aside: {name} is now damaged/{name}")
    for name in found.missing:
        typer.echo(f"missing: {name}")
    if found.trials:
        typer.echo(f"{found.trials} trials whose epochs were lost run again as well")
    if not (found.damaged or found.missing or found.trials):
        typer.echo("nothing is damaged")


def sync(
    study: RecordedArgument,
    store: StoreOption = "runs",
    mlflow: MlflowOption = None,
) -> None:
    """Bring MLflow up to date with a study's ledger, later or from elsewhere."""
    from topk_platform.records import sync as sync_study  # noqa: PLC0415

    sync_study(study, store=store, mlflow_uri=mlflow)
    typer.echo(f"MLflow has all of {study}")
