"""What would keep a study from running, found out beforehand on this machine or on every node of a cluster."""

from topk_platform.running.doctor.diagnosis import diagnose
from topk_platform.running.doctor.findings import Diagnosis, Finding, Node, State

__all__ = ["Diagnosis", "Finding", "Node", "State", "diagnose"]
