"""The checklist that conferences ask authors to fill in, answered from a study's definition and its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from topk_platform.reports.checklist_answers import ANSWERS
from topk_platform.results.from_store import Held, read
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call

__all__ = ["Checklist", "Item", "checklist", "checklist_of"]


@dataclass(frozen=True)
class Item:
    """A question of the checklist.

    Args:
        question: The question.
        answer: A paragraph, list or table in Markdown; empty if the records do not answer the question.
    """

    question: str
    answer: str


@dataclass(frozen=True)
class Checklist:
    """A study's checklist.

    Args:
        study: The study's name.
        items: The questions with their answers.
    """

    study: str
    items: tuple[Item, ...]

    @property
    def open(self) -> tuple[str, ...]:
        """The questions without an answer."""
        return tuple(item.question for item in self.items if not item.answer)

    def to_markdown(self) -> str:
        """Return the checklist as Markdown."""
        parts = [f"# Checklist of {self.study}"]
        for item in self.items:
            parts += [f"## {item.question}", item.answer or "**To be answered by the authors.**"]
        return "\n\n".join(parts) + "\n"

    _repr_markdown_ = to_markdown


def checklist(
    study: Study, *, store: str | Path = "runs", trials: int | None = None, seeds: int | None = None
) -> Checklist:
    """Return a study's checklist with the answers that its definition and its ledger give.

    Args:
        study: The study.
        store: Folder or URI of the results.
        trials: Search trials per arm, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.

    Raises:
        UserError: if the store has no results of the study.

    Source:
        The questions are those of the NeurIPS paper checklist (2024) on experiments, and of Dodge et al., Show Your
        Work, 2019, appendix B.
    """
    check_call(checklist, locals())
    return checklist_of(read(study, store, trials, seeds, needed=True))


def checklist_of(held: Held) -> Checklist:
    """Return the checklist of a study's results in a store."""
    answers = (Item(question, answer(held)) for question, answer in ANSWERS.items())
    return Checklist(held.study.name, tuple(answers))
