"""Studies on Ray."""

from topk_platform.running.planning import ArmPlan, Plan, plan
from topk_platform.running.probing import ArmProbe, Probe, probe
from topk_platform.running.replaying import Found, Replay, find, replay
from topk_platform.running.study import Progress, Summary, make_board, run, table

__all__ = [
    "ArmPlan",
    "ArmProbe",
    "Found",
    "Plan",
    "Probe",
    "Progress",
    "Replay",
    "Summary",
    "find",
    "make_board",
    "plan",
    "probe",
    "replay",
    "run",
    "table",
]
