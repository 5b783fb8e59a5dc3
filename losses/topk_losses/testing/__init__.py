"""Tests for your own losses: a contract to inherit, and slow reference implementations to compare with.

>>> from topk_losses import TopKHinge
>>> class TestMine(LossContract):
...     def make(self, **shared):
...         return TopKHinge(k=2, **shared)
"""

from topk_losses.testing import oracles
from topk_losses.testing.contract import LossContract

__all__ = ["LossContract", "oracles"]
