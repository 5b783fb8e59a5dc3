"""A study's results as evidence: written to a file for others, and trained again."""

from topk_platform.evidence.store_findings import findings

__all__ = ["findings"]
