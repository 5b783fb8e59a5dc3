"""``topk status``: the progress of a store's studies, the processes that run them, and open trials."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from topk_platform.cli.codes import Exit
from topk_platform.cli.commands.early import early_table
from topk_platform.cli.consoles import make_console, print_json, say
from topk_platform.cli.options import JsonOption, SmokeOption, StoreOption, recorded_name
from topk_platform.cli.studies import load_study
from topk_platform.errors import StoreError, UserError
from topk_platform.identity import counts_in_words
from topk_platform.records import (
    NEEDED,
    Ledger,
    Row,
    Store,
    StudyState,
    Undone,
    driven,
    is_study,
    missing_artifacts,
    read_state,
)
from topk_platform.references import is_reference
from topk_platform.running.progress.rows import arms_text, headline

__all__ = ["standing", "status"]

T = TypeVar("T")

_WATCH_SECONDS = 3.0
_AROUND = 6  # lines of a watched study besides its rows: headlines, events and notes


def status(
    study: Annotated[
        str | None, typer.Argument(help="Only this study: its name here, or package.module:attribute.")
    ] = None,
    store: StoreOption = "runs",
    smoke: SmokeOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every few seconds until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the progress of a store's studies arm by arm, which trials are open, and which process runs each study.

    It also shows how well early validation predicts final validation, which early stopping relies on.
    """
    if watch and json:
        raise UserError("--watch and --json exclude each other: leave one out")
    study = _name(study, smoke)
    if watch:
        _watch(make_console(), store, study)
        return
    ledgers, problems = _read(store, study)
    console = make_console()
    shown, more = _each(ledgers, _data if json else partial(_shown, console))
    if json:
        print_json(shown)
    else:
        for part in chain(*shown):
            console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)
    for problem in (*problems, *more):
        say(f"topk: {problem}", err=True)
    if problems or more:
        raise typer.Exit(Exit.BAD_INPUT)
    if not shown:
        raise UserError(_none(store, study))


def _each(
    ledgers: Sequence[tuple[Ledger, list[Row]]], made: Callable[[tuple[Ledger, list[Row]]], T]
) -> tuple[list[T], list[StoreError]]:
    """Return a function's result for each study, and the errors of studies for which it failed."""
    shown: list[T] = []
    problems: list[StoreError] = []
    for one in ledgers:
        try:
            shown.append(made(one))
        except StoreError as error:
            problems.append(error)
    return shown, problems


def _name(study: str | None, smoke: bool) -> str | None:
    """Return the name of the study's folder, None for all folders."""
    if study is None:
        if smoke:
            raise UserError("--smoke is for one study: name it")
        return None
    return recorded_name(load_study(study).name if is_reference(study) else study, smoke)


def _none(store: str, study: str | None) -> str:
    absent = "" if "://" in store or Path(store).exists() else ": there is no such folder"
    return f"store {store!r} holds no study" + (f" {study!r}" if study else "") + absent


def _read(uri: str, only: str | None) -> tuple[list[tuple[Ledger, list[Row]]], list[UserError]]:
    """Return the ledgers of a store, or of one study, with their rows, and the errors of unreadable ones."""
    store, problems = Store.open(uri), list[UserError]()
    ledgers: list[tuple[Ledger, list[Row]]] = []
    for study in store.folders():
        if only not in (None, study):
            continue
        try:
            ledger = Ledger.open(store, study)
            ledgers += [(ledger, ledger.rows())] if ledger.exists else []
        except UserError as error:
            # otherwise it is no study, but a folder such as MLflow's artifacts
            problems += [error] if is_study(store, study) else []
    return ledgers, problems


def _shown(console: Console, study: tuple[Ledger, Sequence[Row]]) -> list[RenderableType]:
    """Return what is printed about a study; texts are printed unchanged."""
    ledger, rows = study

    counting = _counting(ledger, rows)
    early = early_table(ledger, counting)
    return [
        _rendered(console, ledger, rows),
        *([] if early is None else [early]),
        *standing(ledger),
        *_lacking(ledger, counting),
    ]


def _rendered(
    console: Console, ledger: Ledger, rows: Sequence[Row], most: int | None = None
) -> RenderableType:
    """Return a study's headline, one row per arm and, while it runs, the last events."""
    state = read_state(ledger, _counting(ledger, rows))
    lines = [Text(_title(ledger, rows))]
    if state.left:
        lines.append(Text(headline(state)))
    events = [Text(event, no_wrap=True, overflow="ellipsis", style="dim") for event in state.events[-4:]]
    return Group(*lines, *([arms_text(state, console.width, most)] if state.arms else []), *events)


def _title(ledger: Ledger, rows: Sequence[Row]) -> str:
    outdated, last = _outdated(ledger, rows), max((row["ended"] for row in rows), default=None)
    when = f", the last at {last:%Y-%m-%d %H:%M:%S} UTC" if last else ""
    without = f"; {sum(outdated.values())} do not count: {counts_in_words(outdated)}" if outdated else ""
    return f"{ledger.study}: {len(rows)} trials ended{when}{without}"


def _watch(console: Console, store: str, study: str | None) -> None:
    """Show the studies of a store until interrupted; without a terminal, each state is printed below the last."""
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        for shown in _seen(console, store, study):
            live.update(shown, refresh=True)
            time.sleep(_WATCH_SECONDS)


def _seen(console: Console, store: str, study: str | None) -> Iterator[RenderableType]:
    while True:
        ledgers, problems = _read(store, study)
        if not ledgers and not problems:
            raise UserError(_none(store, study))
        most = max(2, console.height // max(1, len(ledgers)) - _AROUND - 2)
        shown, more = _each(ledgers, partial(_watched, console, most))
        yield Group(*chain(*shown), *(Text(f"topk: {problem}") for problem in (*problems, *more)))


def _watched(console: Console, most: int, study: tuple[Ledger, Sequence[Row]]) -> list[RenderableType]:
    ledger, rows = study
    lines = (*_lacking(ledger, _counting(ledger, rows)), *standing(ledger))
    notes = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
    return [_rendered(console, ledger, rows, most), *notes[:2], Text()]


def _data(study: tuple[Ledger, Sequence[Row]]) -> dict[str, Any]:

    ledger, rows = study
    state: StudyState = read_state(ledger, _counting(ledger, rows))
    arms = [{**dataclasses.asdict(arm), "done": arm.done, "total": arm.total} for arm in state.arms]
    return {
        **dataclasses.asdict(state),
        "arms": arms,
        "left": state.left,
        "recorded": len(rows),
        "not_counted": dict(_outdated(ledger, rows)),
        "notes": [*standing(ledger), *_lacking(ledger, _counting(ledger, rows))],
    }


def _outdated(ledger: Ledger, rows: Sequence[Row]) -> Counter[str]:
    """Return how many rows did not count in the last run, by reason."""
    counted = ledger.identities()
    gone = "arms that the study no longer has"
    reasons = (counted[row["arm_id"]].excludes(row) if row["arm_id"] in counted else gone for row in rows)
    return Counter(filter(None, reasons)) if counted else Counter()


def _counting(ledger: Ledger, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that counted in the last run."""
    counted = ledger.identities()
    return [row for row in rows if row["arm_id"] in counted and not counted[row["arm_id"]].excludes(row)]


def standing(ledger: Ledger) -> list[str]:
    """Return lines about the process that runs a study, and about open trials."""
    undone, begun = Undone.read(ledger.store), ledger.store.folders("checkpoints")
    ended = _ended(ledger, {*begun, *(trial.key for trial in undone.open)})
    lines = [f"{ledger.study}: {driven(ledger.store)}"]
    if cut_off := len(set(begun) - ended):
        lines.append(f"checkpoints: {cut_off} trials have begun and go on from there")
    lines += [f"{trial} (noted {trial.when})" for trial in undone.open if trial.key not in ended]
    if undone.tracking:
        lines.append(f"{undone.tracking}; `topk sync` fills it in, or the next run")
    return lines


def _lacking(ledger: Ledger, rows: Sequence[Row]) -> list[str]:
    """Return lines that say how many confirmations lack a file, and how to make it again."""
    files = missing_artifacts(ledger.store, rows)
    results = len({file.key for file in files if file.kind in NEEDED})
    networks = len({file.key for file in files if file.kind not in NEEDED})
    lines = []
    if results:
        lines.append(
            f"ranks or guesses: {results} confirmations lack theirs; `topk run` trains again those that count"
        )
    if networks:
        lines.append(
            f"networks: {networks} confirmations lack theirs; `topk run --networks` trains them again"
        )
    return lines


def _ended(ledger: Ledger, keys: Collection[str]) -> set[str]:
    """Return the keys of those trials, among a few, that have ended."""
    names = ", ".join(f"'{key}'" for key in keys if key.isalnum())
    rows = ledger.read("trials", ["key"], where=f"key in ({names})") if names else None
    return set(rows["key"].to_pylist()) if rows else set()
