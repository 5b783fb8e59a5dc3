"""A store with a small study that nobody trained, damage to any of its files, and what the commands say to it."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from in_process import Said, topk
from made_records import commit, make_record, make_wider_study

from topk_platform import Claim, Contrast, Study
from topk_platform.identity import Identity
from topk_platform.records.ledger import Ledger
from topk_platform.records.recorded import note_plan
from topk_platform.records.run_notes import OpenTrial, Unfinished
from topk_platform.records.snapshot import write_snapshot
from topk_platform.records.storage import checksums, delta
from topk_platform.records.storage.store import Store
from topk_platform.specs import TrialRecord
from topk_platform.versions import versions_of

__all__ = ["Case", "check_case", "copied", "make_store", "records", "reference", "spoil", "study"]

# Without which nothing is lost.
NOTES = ("standing.json", "plan.json", "undone.json", "data.json", "tables/", "lease/", "damaged/")
_LINE = re.compile(r"topk: store '[^']*': (\S+) is (damaged|missing); ")


def study() -> Study:
    """Return the study, for the command line as ``damage:study``."""
    made = make_wider_study()
    gap = Contrast.between(made.arms[1].name, made.arms[0].name, "top3")
    claim = Claim(name="ahead", text="The hinge is ahead.", source="me", contrasts=[gap])
    return replace(made, claims=[claim])


def records() -> list[TrialRecord]:
    """Return the study's records: all searches and confirmations of its two arms."""
    made, codes, result = study(), versions_of(study()), []
    for arm, chosen in enumerate(made.arms):
        code = codes[made.arm_id(chosen)]
        tops = [0.5 + 0.01 * arm + 0.002 * number for number in range(4)]
        result += [make_record(made, n, arm=arm, top3=top, code=code) for n, top in enumerate(tops)]
        result += [make_record(made, 3, arm=arm, seed=s, top3=tops[3] + 0.01 * s, code=code) for s in (1, 2)]
    return result


def identities() -> dict[str, Identity]:
    """Return which rows count; rows of other data are in the ledger too."""
    return {arm_id: Identity(code, "f") for arm_id, code in versions_of(study()).items()}


@contextlib.contextmanager
def _often() -> Iterator[None]:
    """Make checkpoints of the log and compact parts after few commits."""
    with (
        patch.object(checksums, "CHECKPOINT_INTERVAL", 8),
        patch.dict(delta._CONFIGURATION, {"delta.checkpointInterval": "8"}),
        patch.object(delta, "_COMMITS", 5),
    ):
        yield


def make_store(folder: Path) -> None:
    """Write the study, and another one that nobody damages, as runs do: by many commits, with deletion."""
    other = Ledger.open(Store.open(folder), "other")
    with other.writing(study()) as writer:
        writer.put(make_record(study(), 0))
    ledger = Ledger.open(Store.open(folder), "s")
    with _often():
        for half in (records()[:7], records()[7:]):
            _run(ledger, half)
    write_snapshot(ledger, ledger.keys())


def _run(ledger: Ledger, some: Sequence[TrialRecord]) -> None:
    with ledger.writing(study()) as writer:
        ledger.identify(identities())
        note_plan(ledger.store, study())
        writer.table.delete([row["key"] for row in ledger.rows() if row["status"] == "failed"])
        for record in some:
            add(ledger, writer.table, record)
        add(ledger, writer.table, make_record(study(), 8, status="failed"))
    Unfinished((OpenTrial("k", "r/mlp/x", "process lost: killed", "see what ends processes there"),)).note(
        ledger.store
    )


def add(ledger: Ledger, table: delta.Writing, record: TrialRecord) -> None:
    """Commit one record by itself."""
    commit(table, record)
    table.compact()


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "table": ("table", "damage:study", "--format", "csv"),
    "claims": ("table", "damage:study", "--claims", "--format", "csv"),
    "status": ("status",),
}


def reference(folder: Path) -> dict[str, Said]:
    """Return what the commands say of a store, wherever it lies."""
    return {name: _asked(arguments, folder) for name, arguments in COMMANDS.items()}


def _asked(arguments: Sequence[str], folder: Path) -> Said:
    said = topk(*arguments, "--store", str(folder))
    return Said(said.code, said.out.replace(str(folder), "STORE"), said.err.replace(str(folder), "STORE"))


Change = Callable[[random.Random, bytes], bytes]


def _flip(draw: random.Random, content: bytes) -> bytes:
    start = draw.randrange(len(content)) if content else 0
    flipped = bytes(byte ^ (1 << draw.randrange(8)) for byte in content[start : start + 1])
    return content[:start] + flipped + content[start + 1 :]


def _zero(draw: random.Random, content: bytes) -> bytes:
    start, length = draw.randrange(len(content) or 1), draw.choice((16, 512, 4096))
    end = min(len(content), start + length)
    return content[:start] + bytes(end - start) + content[end:]


CHANGES: Mapping[str, Change] = {
    "flip": _flip,
    "flips": lambda draw, content: _flip(draw, _flip(draw, _flip(draw, content))),
    "truncate": lambda draw, content: content[: draw.randrange(len(content) or 1)],
    "empty": lambda draw, content: b"",
    "zero": _zero,
    "noise": lambda draw, content: draw.randbytes(len(content)),
    "append": lambda draw, content: content + draw.randbytes(draw.randrange(1, 100)),
}


def _bits(content: bytes) -> bytes:
    """Turn over a bit in the middle, and one of the last bytes."""
    changed, middle = bytearray(content), len(content) // 2
    changed[middle] ^= 1
    changed[-12] ^= 4
    return bytes(changed)


SPOILED: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "zeroed": lambda content: bytes(len(content)),
    "no text": lambda content: content.replace(b"arm_id", b"\xffrm_id"),  # a column's name in a Parquet file
    "a bit": _bits,
}
"""Damage that a test chooses."""


def spoil(file: Path, how: str) -> None:
    """Damage a file, or take it away where it is to be missing."""
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes(SPOILED[how](file.read_bytes()))


@dataclass
class Case:
    """One damage to a study.

    Args:
        seed: The seed that it is drawn from.
        kind: What is done.
        names: The files to which it is done, by their place in the study's folder.
    """

    seed: int
    kind: str = ""
    names: list[str] = field(default_factory=list)

    def damage(self, folder: Path) -> None:
        """Draw damage and do it to a study's folder."""
        draw = random.Random(self.seed)
        # A folder first, so that a study's few other files are drawn as often as the many of its table.
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        parent = draw.choice(sorted({path.parent for path in files}))
        first, other = draw.choice([path for path in files if path.parent == parent]), draw.choice(files)
        self.kind = draw.choice([*CHANGES, "delete", "delete", "swap", "copy", "stray", "other version"])
        self.names = [str(first.relative_to(folder))]
        if self.kind in CHANGES:
            first.write_bytes(CHANGES[self.kind](draw, first.read_bytes()))
        elif self.kind == "delete":
            first.unlink()
        elif self.kind == "swap":
            contents = first.read_bytes(), other.read_bytes()
            other.write_bytes(contents[0])
            first.write_bytes(contents[1])
            self.names.append(str(other.relative_to(folder)))
        else:
            self._add(draw, folder, first, other)

    def _add(self, draw: random.Random, folder: Path, first: Path, other: Path) -> None:
        """Add a file: a copy, one of something else, or a copy under the name of another version."""
        if self.kind == "other version":
            first = draw.choice(sorted(path for path in folder.rglob("0*") if path.is_file()))
            number = int(first.name[:20]) + draw.randrange(-2, 4)
            new, content = first.with_name(f"{abs(number):020d}{first.name[20:]}"), first.read_bytes()
        elif self.kind == "copy":
            new, content = other.with_name(f"{draw.randrange(1000)}{first.name}"), first.read_bytes()
        else:
            parents = {path.parent for path in folder.rglob("*")}
            folders = sorted(parents | {folder / "lease", folder / "ranks"})
            names = ("x", "x.json", "0.json", ".hidden", "part-0.parquet", "a b.tmp", f"{7:020d}.json")
            name = draw.choice(names)
            new, content = draw.choice(folders) / name, draw.randbytes(draw.randrange(200))
        new.parent.mkdir(exist_ok=True)
        new.write_bytes(content)
        self.names.append(str(new.relative_to(folder)))

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind} of {', '.join(self.names)}"


def check_case(case: Case, folder: Path, sound: Mapping[str, Said]) -> list[str]:
    """Damage a store, and return what the commands do wrong; nothing if all is as it should be.

    Args:
        case: What to damage.
        folder: The store, as :func:`make_store` makes it.
        sound: What the commands say of it while it is sound.

    Returns:
        A line for each fault.
    """
    case.damage(folder / "s")
    faults = list(_wrong(case, reference(folder), sound))
    result = topk("repair", "s", "--store", str(folder))
    if result.code:
        faults.append(f"repair: {result}")
    faults += _wrong_after(folder, result.out, sound)
    return [f"{case}: {fault}" for fault in faults]


def _wrong(case: Case, now: Mapping[str, Said], sound: Mapping[str, Said]) -> Iterator[str]:
    for name, said in now.items():
        if name == "status" and "other: 1 trial ended" not in said.out:
            yield f"status hides another study: {said}"
        if said.code == 0:
            if said.out != sound[name].out and not (name == "status" and _is_note(case)):
                yield f"{name}: another answer without a word: {said.out}"
        elif said.code != 2 or not _is_told(case, said):
            yield f"{name}: {said}"


def _is_note(case: Case) -> bool:
    return any(name.startswith(NOTES) for name in case.names)


def _is_told(case: Case, said: Said) -> bool:
    """Return whether a command's error is one line that names a damaged file, or a folder whose only file is gone."""
    lines = said.err.splitlines()
    match = _LINE.match(lines[0]) if len(lines) == 1 else None
    return match is not None and any(f"{name}/".startswith(f"{match[1]}/") for name in case.names)


def _wrong_after(folder: Path, repaired: str, sound: Mapping[str, Said]) -> Iterator[str]:
    """Yield what is wrong after a repair: every command works, and with what was lost the table is as it was."""
    for name, said in reference(folder).items():
        if said.code or "Traceback" in said.err:  # a note of runs without ranks is none
            yield f"after {repaired!r}, {name}: {said}"
    again = topk("repair", "s", "--store", str(folder))
    if again.code or again.out != "nothing is damaged\n":
        yield f"after {repaired!r}, repair again: {again}"
    ledger = Ledger.open(Store.open(folder), "s")
    kept = ledger.keys()
    if "ledger" not in repaired and len(kept) != len(records()) + 1:
        yield f"after {repaired!r}, {len(kept)} trials are left"
    with ledger.writing(study()) as writer:
        for record in records():
            if record.trial.key not in kept:
                writer.put(record)
    for name in ("table", "claims"):
        if (said := _asked(COMMANDS[name], folder)) != sound[name]:
            yield f"after {repaired!r} and what was lost, {name}: {said}"


def copied(whole: Path, folder: Path) -> Path:
    """Return a copy of a store in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    return folder
