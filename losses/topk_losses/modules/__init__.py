# ruff: noqa: F403, PLE0605 - what the families export
"""Every loss as a module; the constructor takes the parameters of the function."""

from topk_losses.modules._base import Loss as Loss
from topk_losses.modules.conformal import *
from topk_losses.modules.early_learning import *
from topk_losses.modules.entropy import *
from topk_losses.modules.hinge import *
from topk_losses.modules.imbalance import *
from topk_losses.modules.noised import *
from topk_losses.modules.robust import *
from topk_losses.modules.soft_topk import *

# What each family exports, so that a new loss is named in its own file alone.
__all__ = sorted(name for name, value in globals().items() if isinstance(value, type))
