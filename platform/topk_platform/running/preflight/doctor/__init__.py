"""Checks before a run: they report problems of this machine or of a cluster's nodes that would stop a study."""

from topk_platform.running.preflight.doctor.diagnosis import diagnose
from topk_platform.running.preflight.doctor.results import CheckResult, Diagnosis, Node

__all__ = ["CheckResult", "Diagnosis", "Node", "diagnose"]
