"""Contracts that outsiders can run on their own regimes; needs pytest only where it is subclassed."""

from topk_platform.testing.regimes import RegimeContract

__all__ = ["RegimeContract"]
