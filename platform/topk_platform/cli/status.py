"""``topk status``: the progress of a store's studies, the processes that run them, and open trials."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from topk_platform.cli import options
from topk_platform.cli.consoles import Exit, make_console, print_json, say
from topk_platform.cli.options import recorded_name
from topk_platform.cli.studies import as_reference
from topk_platform.errors import UserError
from topk_platform.identity import counts_in_words
from topk_platform.records.files import NEEDED, missing_artifacts
from topk_platform.records.ledger import Ledger, instead_of, is_study
from topk_platform.records.recorded import Recorded
from topk_platform.records.run_notes import Unfinished
from topk_platform.records.states import StudyState, read_state
from topk_platform.records.storage.checked_json import command_of
from topk_platform.records.storage.lease import driven
from topk_platform.records.storage.store import Store
from topk_platform.references import is_reference
from topk_platform.running.views import headline, progress_text
from topk_platform.specs.checks import plural

__all__ = ["status"]

_WATCH_SECONDS = 3.0
_AROUND = 7  # the other lines of a watched study: two headlines, two rows of heads, two notes, an empty one


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            help="Only this study: its name here, a file such as birds.py, or package.module:attribute."
        ),
    ] = None,
    store: options.Store = "runs",
    smoke: options.Smoke = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every few seconds until Ctrl-C.")] = False,
    json: options.Json = False,
) -> None:
    """Show the progress of a store's studies arm by arm, which trials are open, and which process runs each study.

    Example: topk status --store s3://bucket/runs --watch
    """
    if watch and json:
        raise UserError("--watch and --json exclude each other: leave one out")
    if smoke and study is None:
        raise UserError("--smoke is for one study: name it")
    study = None if study is None else as_reference(study)
    reference = study if study is not None and is_reference(study) else ""
    study = None if study is None else recorded_name(study, smoke)
    if watch:
        _watch(make_console(), store, study, reference)
        return
    recorded, problems = _read(store, study, reference)
    console = make_console()
    shown = [(_data if json else _shown)(read) for read in recorded]
    if json:
        print_json(shown)
    else:
        for part in chain(*shown):
            console.print(part, soft_wrap=isinstance(part, str), markup=False, highlight=False)
    for problem in problems:
        say(f"topk: {problem}", err=True)
    if problems:
        raise typer.Exit(Exit.BAD_INPUT)
    if not shown:
        raise UserError(_none(store, study))


def _none(store: str, study: str | None) -> str:
    if study:
        return f"store {store!r} holds no study {study!r}{instead_of(store, study)}"
    missing = "" if "://" in store or Path(store).exists() else ": there is no such folder"
    return f"store {store!r} holds no study{missing}"


@dataclass(frozen=True)
class _Study:
    """A study as the command shows it."""

    recorded: Recorded
    state: StudyState
    notes: list[str]

    @classmethod
    def read(cls, ledger: Ledger, reference: str) -> _Study:
        recorded = Recorded.read(ledger)
        suggested = partial(command_of, ledger.store, reference=reference)
        notes = [*_standing(recorded, suggested), *_lacking(recorded, suggested)]
        return cls(recorded, read_state(recorded), notes)


def _read(uri: str, only: str | None, reference: str) -> tuple[list[_Study], list[UserError]]:
    """Return the studies of a store, or one of them, and the errors of unreadable ones.

    ``reference`` is how the user named the one study, if as ``package.module:attribute``.
    """
    store, problems = Store.open(uri), list[UserError]()
    studies: list[_Study] = []
    for study in store.folders():
        if only not in (None, study):
            continue
        try:
            ledger = Ledger.open(store, study)
            studies += [_Study.read(ledger, reference)] if ledger.exists else []
        except UserError as error:
            # A folder that is not a study, such as MLflow's artifacts, is not a problem.
            problems += [error] if is_study(store, study) else []
    return studies, problems


def _shown(study: _Study) -> list[RenderableType]:
    """Return the parts that are printed about a study; texts are printed unchanged."""
    return [_rendered(study), *study.notes]


def _rendered(study: _Study, lines: int | None = None) -> RenderableType:
    """Return a study's headlines and, in so many lines, its arms and what of it runs."""
    state = study.state
    heads = [Text(_title(study.recorded))]
    if state.whole.left:
        heads.append(Text(headline(state)))
    return Group(*heads, progress_text(state, lines))


def _title(recorded: Recorded) -> str:
    outdated, last = recorded.outdated, recorded.last
    when = f", the last at {last:%Y-%m-%d %H:%M:%S} UTC" if last else ""
    without = f"; {sum(outdated.values())} do not count: {counts_in_words(outdated)}" if outdated else ""
    return f"{recorded.ledger.study}: {plural(recorded.trials, 'trial')} ended{when}{without}"


def _watch(console: Console, store: str, study: str | None, reference: str) -> None:
    """Show the studies of a store until interrupted; without a terminal, each state is printed below the last."""
    live = Live(console=console, auto_refresh=False, screen=True) if console.is_terminal else None
    show = console.print if live is None else partial(live.update, refresh=True)
    with live or nullcontext():
        for shown in _seen(console, store, study, reference):
            show(shown)
            time.sleep(_WATCH_SECONDS)


def _seen(console: Console, store: str, study: str | None, reference: str) -> Iterator[RenderableType]:
    while True:
        studies, problems = _read(store, study, reference)
        if not studies and not problems:
            raise UserError(_none(store, study))
        lines = console.height // max(1, len(studies)) - _AROUND
        shown = (_watched(lines, read) for read in studies)
        yield Group(*chain(*shown), *(Text(f"topk: {problem}") for problem in problems))


def _watched(lines: int, study: _Study) -> list[RenderableType]:
    notes = [Text(line, no_wrap=True, overflow="ellipsis") for line in study.notes[:2]]
    return [_rendered(study, lines), *notes, Text()]


def _data(study: _Study) -> dict[str, Any]:
    state, recorded = study.state, study.recorded
    arms = [{**dataclasses.asdict(arm), "done": arm.done, "total": arm.total} for arm in state.arms]
    return {
        **dataclasses.asdict(state),
        "arms": arms,
        "left": state.whole.left,
        "recorded": recorded.trials,
        "not_counted": recorded.outdated,
        "notes": study.notes,
    }


def _standing(recorded: Recorded, suggested: Callable[..., str]) -> list[str]:
    """Return lines about the process that runs a study, and about open trials."""
    store, ended = recorded.ledger.store, recorded.keys
    unfinished, begun = Unfinished.read(store), store.folders("checkpoints")
    lines = [f"{recorded.ledger.study}: {driven(store)}"]
    if cut_off := len(set(begun) - set(ended)):
        lines.append(f"checkpoints: {plural(cut_off, 'trial')} began and will go on from there")
    lines += [f"{trial} (noted {trial.when})" for trial in unfinished.open if trial.key not in ended]
    if unfinished.tracking:
        lines.append(
            f"{unfinished.tracking}; `{suggested('sync')}` fills it in (with the run's --mlflow, if it had one), "
            "or the next run"
        )
    return lines


def _lacking(recorded: Recorded, suggested: Callable[..., str]) -> list[str]:
    """Return lines that say how many confirmations lack a file, and how to make it again."""
    rows = [row for history in recorded.histories.values() for row in history.confirm.values()]
    keys: dict[bool, set[str]] = {True: set(), False: set()}
    for file in missing_artifacts(recorded.ledger.store, rows):
        keys[file.kind in NEEDED].add(file.key)
    lines = []
    for needed, what, again in (
        (True, "ranks or guesses", f"`{suggested('run')}` trains those that count again"),
        (False, "networks", f"`{suggested('run', '--networks')}` trains them again"),
    ):
        if count := len(keys[needed]):
            lack = "lacks its own" if count == 1 else "lack theirs"
            lines.append(f"{what}: {plural(count, 'confirmation')} {lack}; {again}")
    return lines
