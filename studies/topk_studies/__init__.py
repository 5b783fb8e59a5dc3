"""Study definitions: functions that return ``Study`` values, in one literal table."""

from collections.abc import Callable

from topk_platform import Study
from topk_studies.handwritten import digits
from topk_studies.ring import ring_capacity, ring_modes, ring_overlap

__all__ = ["STUDIES", "digits", "ring_capacity", "ring_modes", "ring_overlap"]

STUDIES: dict[str, Callable[[], Study]] = {
    "digits": digits,
    "ring_overlap": ring_overlap,
    "ring_modes": ring_modes,
    "ring_capacity": ring_capacity,
}
