"""The summary of a run."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from rich.console import Group
from rich.text import Text

from topk_platform.records.run_notes import OpenTrial
from topk_platform.reports.study_table import StudyTable
from topk_platform.reports.text_tables import as_text
from topk_platform.reports.words import command, only_words
from topk_platform.running.run_options import RunOptions
from topk_platform.specs.checks import plural

__all__ = ["Outcome", "Summary", "problems"]


@dataclass
class Outcome:
    """How a run ended, and the work that it left.

    Args:
        open: The trials that faults left without a result after all tries; the next run tries them again.
        unsaved: Why the networks of some trials could not be kept, by the trials' keys; their results are kept.
        lost: Why Ray was lost; empty if it was not.
        partial: The limits that were used up before all trials had been tried, in words; empty if none was.
        interrupted: Whether the user or a signal ended the run before all trials had been tried.
        ran: How many trials ended in this run.
        tracking_error: Why MLflow is behind; empty if it is not.
    """

    open: list[OpenTrial] = field(default_factory=list)
    unsaved: dict[str, str] = field(default_factory=dict)
    lost: str = ""
    partial: str = ""
    interrupted: bool = False
    ran: int = 0
    tracking_error: str = ""


@dataclass(frozen=True, repr=False)
class Summary:
    """The summary of a run. It prints as the table and the problems, and shows both in a notebook.

    Args:
        table: The current table of the requested arms and budget.
        left: How many trials have not ended; above 0 after an interrupt, at a limit, or if faults left trials open.
        folder: The study's folder, as a URI.
        outcome: How the run ended: trials that faults left open, limits that were used up, an interrupt, and why MLflow
            is behind.
        beyond: How many of the ended trials were not requested: ensembles are trained as a whole.
        options: The options of the run, which suggested commands repeat.
    """

    table: StudyTable
    left: int
    folder: str
    outcome: Outcome = field(default_factory=Outcome)
    beyond: int = 0
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def ran(self) -> int:
        """How many trials ended in this run."""
        return self.outcome.ran

    def command(self, name: str, *arguments: str) -> str:
        """Return a command about the study, as :func:`~topk_platform.reports.words.command` does."""
        return command(name, self.table.study, *arguments, given=self.options.given)

    def __rich__(self) -> Group:
        return Group(self.table, *self._lines())

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table.to_html() + "".join(f"<p>{html.escape(line.plain)}</p>" for line in self._lines())

    def _lines(self) -> list[Text]:
        along = f", {self.beyond} of them more than requested, because ensembles are trained as a whole"
        ran = f"{plural(self.ran, 'trial')} ran{along if self.beyond else ''}"
        return [Text(f"{ran}. Results: {self.folder} (ledger, tables, models, ranks)"), *problems(self)]


def problems(summary: Summary) -> list[Text]:
    """Return the problems of a run and the remaining work, one line each."""
    lines = []
    if behind := summary.outcome.tracking_error:
        sync = summary.command("sync", *summary.options.sync)
        lines.append(Text(f"{behind}; `{sync}` fills it in, or the next run"))
    lines += [Text(f"failed: {key} {arm}: {why}", "red") for key, arm, why in summary.table.failures]
    lines += [
        Text(
            f"warning: the network of {key} could not be kept, but its result is kept: {why}; "
            f"`{summary.command('run', *only_words(summary.options.globs), '--networks')}` trains it again"
        )
        for key, why in summary.outcome.unsaved.items()
    ]
    lines += [Text(str(trial), "red") for trial in summary.outcome.open]
    left = _left(summary.outcome, summary.left)
    return [*lines, Text(left)] if left else lines


def _left(outcome: Outcome, left: int) -> str:
    trials, again = f"{left} trials left", "the same command goes on from here."
    if outcome.lost:
        return f"{outcome.lost}; {trials}, and {again}"
    if outcome.interrupted:
        return f"Interrupted with {trials}; {again}"
    if outcome.partial and not outcome.open:
        return f"Partial: {outcome.partial} used up with {trials}; {again}"
    if left:
        return (
            f"{trials}: trials without a result, and those that wait for them; the same command tries again."
        )
    return ""
