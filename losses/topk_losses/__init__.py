# ruff: noqa: F403, PLE0605 - what the families of losses export
"""Losses for top-K classification: exact, numerically stable, with torch as the only dependency."""

from topk_losses import functional as functional
from topk_losses.backends import *
from topk_losses.heads import *
from topk_losses.margins import *
from topk_losses.matching import *
from topk_losses.modules._base import Loss as Loss
from topk_losses.modules.conformal import *
from topk_losses.modules.early_learning import *
from topk_losses.modules.entropy import *
from topk_losses.modules.hinge import *
from topk_losses.modules.imbalance import *
from topk_losses.modules.noised import *
from topk_losses.modules.robust import *
from topk_losses.modules.soft_topk import *

# What each file exports, so that a new loss is named in its own file alone.
__all__ = sorted(
    [
        "functional",
        *(
            name
            for name, value in globals().items()
            if callable(value) and value.__module__.startswith(__name__)
        ),
    ]
)
