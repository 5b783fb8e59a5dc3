"""What ``topk_studies`` ships, made or read once for all tests of a process: either takes a second."""

from __future__ import annotations

from functools import cache

from topk_platform import Study
from topk_platform.cli.studies import shipped_findings
from topk_platform.results.findings import Findings
from topk_studies import STUDIES


@cache
def shipped() -> tuple[Findings, ...]:
    """Return the findings as the command reads them; nobody changes what is in them."""
    return shipped_findings()


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name."""
    return {name: make() for name, make in STUDIES.items()}
