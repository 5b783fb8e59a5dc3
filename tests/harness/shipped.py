"""The findings that ``topk_studies`` ships, read once for all tests of a process: it takes a second."""

from __future__ import annotations

from functools import cache

from topk_platform.cli.studies import shipped_findings
from topk_platform.results.findings import Findings


@cache
def shipped() -> tuple[Findings, ...]:
    """Return them as the command reads them; nobody changes what is in them."""
    return shipped_findings()
