"""What would keep a study from running, found out beforehand on this machine or on every node of a cluster."""

from topk_platform.running.doctor.diagnosis import diagnose
from topk_platform.running.doctor.results import CheckResult, Diagnosis, Node, State

__all__ = ["CheckResult", "Diagnosis", "Node", "State", "diagnose"]
