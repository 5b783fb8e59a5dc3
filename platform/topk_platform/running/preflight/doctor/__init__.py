"""What would keep a study from running, found out beforehand on this machine or on every node of a cluster."""

from topk_platform.running.preflight.doctor.diagnosis import diagnose
from topk_platform.running.preflight.doctor.results import CheckResult, Diagnosis, Node, State

__all__ = ["CheckResult", "Diagnosis", "Node", "State", "diagnose"]
