"""A study's results as evidence: written to a file for others, computed or trained again, adopted, and compared."""

from topk_platform.evidence.bundle import Bundle, bundle
from topk_platform.evidence.store_findings import findings
from topk_platform.evidence.verifying import Checked, Verification, verify

__all__ = ["Bundle", "Checked", "Verification", "bundle", "findings", "verify"]
