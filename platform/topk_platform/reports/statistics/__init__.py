"""The statistics of tables: intervals, power, and tests with their correction for multiple comparisons."""

from topk_platform.reports.statistics.images import ImagePart, accuracies, image_part
from topk_platform.reports.statistics.intervals import (
    Covers,
    Estimate,
    estimate,
    interval,
    paired_difference,
    t_quantile,
)
from topk_platform.reports.statistics.power import Precision
from topk_platform.reports.statistics.regimes import Ranking, improvement, ranking
from topk_platform.reports.statistics.tests import holm, p_of, wilcoxon

__all__ = [
    "Covers",
    "Estimate",
    "ImagePart",
    "Precision",
    "Ranking",
    "accuracies",
    "estimate",
    "holm",
    "image_part",
    "improvement",
    "interval",
    "p_of",
    "paired_difference",
    "ranking",
    "t_quantile",
    "wilcoxon",
]
