"""Study definitions: functions that return ``Study`` values, in one literal table."""

from collections.abc import Callable

from topk_platform import Study
from topk_studies.handwritten import digits

__all__ = ["STUDIES", "digits"]

STUDIES: dict[str, Callable[[], Study]] = {"digits": digits}
