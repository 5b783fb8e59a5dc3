"""The statistics of tables: intervals and what they cover, tests with their correction, and power."""

from topk_platform.results.statistics.images import ImagePart, accuracies, image_part
from topk_platform.results.statistics.intervals import ONE_SEARCH, Covers, Estimate, estimate, interval
from topk_platform.results.statistics.power import Precision
from topk_platform.results.statistics.tests import critical, holm, p_of

__all__ = [
    "ONE_SEARCH",
    "Covers",
    "Estimate",
    "ImagePart",
    "Precision",
    "accuracies",
    "critical",
    "estimate",
    "holm",
    "image_part",
    "interval",
    "p_of",
]
