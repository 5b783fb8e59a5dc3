"""Smooth versions of "the k largest" as functions of their own."""

from topk_losses.operators.noised import expected_topk, noised_topk
from topk_losses.operators.soft_topk import lapsum_topk, soft_topk
from topk_losses.operators.symmetric import inclusion_probabilities, log_elementary_symmetric

__all__ = [
    "expected_topk",
    "inclusion_probabilities",
    "lapsum_topk",
    "log_elementary_symmetric",
    "noised_topk",
    "soft_topk",
]
