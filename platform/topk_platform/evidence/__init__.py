"""A study as evidence: one file with everything that its tables and claims rest on, and its verification."""

from topk_platform.evidence.bundle import Bundle, bundle
from topk_platform.evidence.findings import findings
from topk_platform.evidence.verifying import Checked, Verification, verify

__all__ = ["Bundle", "Checked", "Verification", "bundle", "findings", "verify"]
