"""The numbers of samples and the class names of each regime of a study, noted in the study's folder.

A run notes them, because it has the data at hand. Reports then need not read the data. No trial's identity depends
on the note.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topk_platform.records.storage.checked_json import read_checked, with_checksum
from topk_platform.records.storage.store import Store
from topk_platform.records.table.mark import repair_of

__all__ = ["DATA", "DataNote", "Samples", "note_data", "read_data"]

DATA = "data.json"
"""The name of the file in a study's folder."""


@dataclass(frozen=True)
class Samples:
    """A regime's numbers of samples, after its conditions.

    Args:
        regime: The regime's name.
        train: Training samples.
        validation: Validation samples, which choose configurations and epochs.
        test: Test samples.
        classes: The number of classes.
        fewest: Training samples of the rarest class.
        most: Training samples of the most frequent class.
        groups: How many groups the test samples form, such as ``"160 typefaces"``; empty if that is not known.
        shots: How many classes are many-, medium- and few-shot, in words.
        wrong: The share of the training samples whose label a condition changed, as counted in the data.
    """

    regime: str
    train: int
    validation: int
    test: int
    classes: int
    fewest: int
    most: int
    groups: str = ""
    shots: str = ""
    wrong: float = 0.0

    def __str__(self) -> str:
        groups = f" of {self.groups}" if self.groups else ""
        return (
            f"trained with {self.train}, validated with {self.validation}, tested with {self.test} "
            f"samples{groups}; {self.classes} classes of {self.each} training sample{'s' * (self.each != '1')}"
            f"{'; ' if self.shots else ''}{self.shots}"
            f"{f'; {self.wrong:.1%} of the training labels are wrong' if self.wrong else ''}"
        )

    @property
    def each(self) -> str:
        """The training samples of a class, such as ``"20"`` or ``"3 to 6"``."""
        return f"{self.fewest}" if self.fewest == self.most else f"{self.fewest} to {self.most}"


@dataclass(frozen=True)
class DataNote:
    """The note on a regime's data.

    Args:
        of: A hash of the data and the conditions from which the numbers were counted.
        samples: The numbers of samples.
        names: The names of the classes; empty if the dataset has none.
        notes: Sentences on the data that a user should know, such as images in two splits.
    """

    of: str
    samples: Samples
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def note_data(store: Store, notes: Mapping[str, DataNote]) -> None:
    """Write notes on regimes into a study's folder. They replace earlier notes on the same regimes.

    Args:
        store: The study's folder.
        notes: The notes, by the regime's name.
    """
    if not notes:
        return
    content = {name: dataclasses.asdict(note) for name, note in {**read_data(store), **notes}.items()}
    store.write(DATA, with_checksum(content))


def read_data(store: Store) -> dict[str, DataNote]:
    """Return the note on each regime of a study, by the regime's name. Regimes that no run has noted are missing.

    Args:
        store: The study's folder.

    Raises:
        DamagedError: if the file is damaged.
        StoreError: if it cannot be read.
    """
    remedy = f"{repair_of(store)} sets it aside, and the next run makes it again"
    return read_checked(store, DATA, remedy, _notes) or {}


def _notes(content: Mapping[str, Any]) -> dict[str, DataNote]:
    return {name: _note(fields) for name, fields in content.items()}


def _note(fields: Mapping[str, Any]) -> DataNote:
    texts = {name: tuple(fields.get(name, ())) for name in ("names", "notes")}
    return DataNote(fields["of"], Samples(**fields["samples"]), **texts)
