"""Checks, before a run, of what would keep a study from running on this machine or on a cluster's nodes."""

from topk_platform.running.preflight.doctor.diagnosis import diagnose
from topk_platform.running.preflight.doctor.results import CheckResult, Diagnosis, Node, State

__all__ = ["CheckResult", "Diagnosis", "Node", "State", "diagnose"]
