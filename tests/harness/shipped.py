"""What ``topk_studies`` ships, made or read once for all tests of a process: either takes a second."""

from __future__ import annotations

from functools import cache

from topk_platform import Study
from topk_platform.results.findings import Findings
from topk_studies import STUDIES, evidence


@cache
def shipped() -> tuple[Findings, ...]:
    """Return the findings; nobody changes what is in them."""
    return evidence()


@cache
def studies() -> dict[str, Study]:
    """Return all studies by name."""
    return {name: make() for name, make in STUDIES.items()}
