"""A study in one file: its definition, ledger, ranks, tables and claims, and the versions that produced them."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topk_platform.elsewhere import made_by, parse_json, parse_study
from topk_platform.errors import UserError
from topk_platform.evidence.archive import members, table_of
from topk_platform.identity import Identity, environment_of
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.records.artifacts.files import artifact_name, read_artifact
from topk_platform.records.ledger.adopted import ADOPTED, adopted_in
from topk_platform.records.table.schema import CAME_LATER, ledger_schema
from topk_platform.reports import to_files
from topk_platform.reports.decisions_text import claims_to_csv, claims_to_markdown
from topk_platform.results.decisions import decided
from topk_platform.results.from_store import Held, read
from topk_platform.specs import Study
from topk_platform.specs.fields import check_call, check_fields

__all__ = ["KIND", "Bundle", "bundle", "results"]

KIND = "a file of `topk bundle`"

MANIFEST = "bundle.json"
_FORMAT = 1
_STUDY, _ROWS, _RANKS = "study.json", "ledger.parquet", "ranks/"
# The time of every entry is fixed, so that the same study gives the same file.
_MOMENT = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle.

    Args:
        manifest: The versions, the identities of the rows that count, and the SHA-256 of every file.
        files: The bytes of every other file, by name.
    """

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]

    @cached_property
    def study(self) -> Study:
        """The study as it was defined then."""
        return parse_study(self.files[_STUDY].decode())

    @property
    def identities(self) -> dict[str, Identity]:
        """The identities of the rows that count, by arm identity."""
        given: Mapping[str, Any] = self.manifest["identities"]
        adopted = adopted_in(self.files.get(ADOPTED, b"[]"))
        identities = {i: Identity(**fields, adopted=adopted.get(i, ())) for i, fields in given.items()}
        for identity in identities.values():
            check_fields(identity)
        return identities

    @property
    def results(self) -> dict[str, str]:
        """The tables and claims, by file name."""
        return {name: data.decode() for name, data in self.files.items() if name.startswith("results/")}

    def restore(self, store: Store) -> Held:
        """Write the ledger and the ranks into a store, and return the study's results there."""
        rows = table_of(self.files[_ROWS], _ROWS)
        _check_rows(rows, self.study)
        ledger = Ledger.restored(store, self.study.name, rows, self.identities)
        for name, data in self.files.items():
            if name == ADOPTED:
                ledger.store.write(name, data)
            if name.startswith(_RANKS):
                table_of(data, name)  # raises if the table is beyond the limits
                ledger.store.write(name, data)
        return Held(self.study, ledger, read_history(ledger, self.study, self.identities, curves=False))

    @classmethod
    def read(cls, file: str | Path) -> Bundle:
        """Return the bundle in a file.

        Names, sizes and methods are checked before anything is unpacked; see ``docs/evidence.md`` for the limits.

        Raises:
            UserError: if the file is not a bundle, or a file in it has another SHA-256 than the manifest.
        """
        if Path(file).is_dir():
            raise UserError(
                f"{str(file)!r} must be a file of `topk bundle`, got a folder: bundle the study first; a ledger in a "
                "store is examined by `topk repair STUDY`"
            )
        with made_by(file, KIND, zipfile.BadZipFile):
            content = members(file)
            manifest = parse_json(content.pop(MANIFEST))
            if manifest["format"] != _FORMAT:
                raise ValueError(f"it has format {manifest['format']!r}, this program reads {_FORMAT}")
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
            if differing := sorted({name for name, _ in set(sums.items()) ^ set(manifest["sha256"].items())}):
                raise ValueError(f"it is damaged or was changed: {differing}")
            missing = sorted({_STUDY, _ROWS} - content.keys())
            if missing:
                raise ValueError(f"it lacks {missing}")
        return cls(manifest, content)

    def to_bytes(self) -> bytes:
        """Return the bundle as the bytes of a file."""
        buffer = io.BytesIO()
        everything = {MANIFEST: json.dumps(self.manifest, indent=1, sort_keys=True).encode(), **self.files}
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(everything):
                entry = zipfile.ZipInfo(name, _MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, everything[name])
        return buffer.getvalue()


def _check_rows(rows: pa.Table, study: Study) -> None:
    """Raise ``ValueError`` unless rows have a ledger's columns, its kinds of rows, and keys of trials."""
    for field in ledger_schema(study):
        if field.name in CAME_LATER and field.name not in rows.column_names:
            continue
        if field.name not in rows.column_names or rows.schema.field(field.name).type != field.type:
            raise ValueError(f"{_ROWS} must have a column {field.name!r} of {field.type}")
    kinds = set(pc.unique(rows["kind"]).to_pylist())
    if not kinds <= {"trials", "epochs"}:
        raise ValueError(f"{_ROWS} must have rows of trials and epochs, got {sorted(map(repr, kinds))}")
    keys = pc.match_substring_regex(rows["key"], "^[0-9A-Za-z]+$")
    if not pc.all(keys.fill_null(False), min_count=0).as_py():
        raise ValueError(f"{_ROWS} must have a key in every row, of letters and digits")


def bundle(study: Study, *, store: str | Path = "runs") -> Bundle:
    """Return a study's results in a store as one bundle: all trials and epochs, tables and claims.

    It has all recorded rows, including rows that do not count, and the ranks of the confirmations that the tables use.
    The same results give the same bytes.

    Args:
        study: The study.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study.
    """
    check_call(bundle, locals())
    # A reader of the bundle may lack the module that the reference names, and has the study's budget as its own.
    study = replace(study, reference="", changed=(), plan=())
    held = read(study, store, needed=True)
    kept = held.ledger.store
    files = {
        _STUDY: study.to_json().encode(),
        _ROWS: _parquet(held.ledger.whole()),
        **_ranks(held),
        **({ADOPTED: kept.read(ADOPTED)} if kept.exists(ADOPTED) else {}),
        **{name: text.encode() for name, text in results(held).items()},
    }
    identities = last_counted(held.ledger, study)
    counted = [row for history in held.histories.values() for row in history.rows()]
    manifest = {
        "format": _FORMAT,
        "study": study.name,
        "trials": len(counted),
        "code_versions": sorted({row["code_version"] for row in counted}),
        "environments": sorted({environment_of(row) for row in counted}),
        "identities": {arm_id: identity.to_data() for arm_id, identity in identities.items()},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    return Bundle(manifest, files)


def results(held: Held) -> dict[str, str]:
    """Return the tables and claims as texts, by their names in a bundle."""
    table = replace(held.table, given={})  # a bundle is read where the store may not be
    texts = {name: data.decode() for name, data in to_files(table).items() if not name.endswith(".parquet")}
    if held.study.claims:
        decisions = decided(held)
        texts["claims.md"] = claims_to_markdown(held.study.name, decisions)
        texts["claims.csv"] = claims_to_csv(decisions)
    return {f"results/{name}": text for name, text in texts.items()}


def _ranks(held: Held) -> dict[str, bytes]:
    rows = (row for arm in held.results.values() for row in arm.confirmations().values())
    ranks = {}
    for row in rows:
        with suppress(FileNotFoundError):
            ranks[artifact_name("ranks", row["key"])] = read_artifact(held.ledger.store, "ranks", row)
    return ranks


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return bytes(sink.getvalue())
