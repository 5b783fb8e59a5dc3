"""A study's findings in a small file: definition, cells, chosen values, descriptions of regimes, and origin.

The file holds neither trials nor ranks, so it takes kilobytes instead of megabytes. It is enough for the table, for
plots made from a table, and for the verdicts on claims. Results cannot be recomputed from it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topk_platform.results.decisions import ContrastResult, Decision, decisions_of
from topk_platform.results.findings_file import findings_data, findings_of
from topk_platform.results.findings_schema import Situations
from topk_platform.results.table import Table
from topk_platform.specs import Study
from topk_platform.trust import made_by, parse_json, unzipped

__all__ = ["Findings"]

_KIND = "a file of findings, as `topk export --format findings` writes it"


@dataclass(frozen=True, repr=False)
class Findings:
    """The findings of a study.

    Args:
        table: Its table; its confirmations have only status and key.
        situations: The descriptions of its regimes.
        made: Its origin: ``trials``, ``code_versions``, ``environments``, ``datasets``, ``package`` and ``note``.
        contrasts: The results of all contrasts of its claims, in the claims' order.
    """

    table: Table
    situations: Situations
    made: Mapping[str, Any]
    contrasts: Sequence[ContrastResult]

    @property
    def study(self) -> Study:
        """The study, as it was defined."""
        return self.table.study

    def to_bytes(self) -> bytes:
        """Return the file, gzipped JSON; the same for the same findings."""
        data = findings_data(self.table, self.situations, self.made, self.contrasts)
        return gzip.compress(json.dumps(data, allow_nan=False, separators=(",", ":")).encode(), mtime=0)

    @classmethod
    def read(cls, file: str | Path) -> Findings:
        """Return the findings in a file that ``topk export STUDY --format findings`` wrote.

        Args:
            file: The file.

        Raises:
            UserError: if it cannot be read, is not a file of findings, or unpacks to more than ``TOPK_FILE_GIB``
                allows.
        """
        with made_by(file, _KIND):
            return cls(*findings_of(parse_json(unzipped(Path(file).expanduser()))))

    def decisions(self) -> tuple[Decision, ...]:
        """Return the verdicts on the study's claims."""
        return decisions_of(self.study, self.contrasts)

    def origin(self) -> str:
        """Return the findings' origin in one line."""
        made = self.made
        note = f"; {made['note']}" if made["note"] else ""
        return f"{self.study.name}: {made['trials']} recorded trials, topk-studies {made['package']}{note}"

    __repr__ = origin
