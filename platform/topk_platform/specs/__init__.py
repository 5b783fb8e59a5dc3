# ruff: noqa: F403 - the package has what its modules export
"""Frozen dataclasses for a study's question and its records; they need only the standard library."""

from topk_platform.specs import (
    arm,
    claims,
    codec,
    loss,
    metric_names,
    recipe,
    regime_conditions,
    search_rules,
    searches,
    smoke,
    space,
    study,
    trial,
)
from topk_platform.specs.arm import *
from topk_platform.specs.claims import *
from topk_platform.specs.codec import *
from topk_platform.specs.loss import *
from topk_platform.specs.metric_names import *
from topk_platform.specs.recipe import *
from topk_platform.specs.regime_conditions import *
from topk_platform.specs.regime_conditions import CONDITIONS, Condition, Noise
from topk_platform.specs.search_rules import *
from topk_platform.specs.search_rules import Pruner, Sampler
from topk_platform.specs.searches import *
from topk_platform.specs.smoke import *
from topk_platform.specs.space import *
from topk_platform.specs.study import *
from topk_platform.specs.trial import *

__all__ = ["CONDITIONS", "Condition", "Noise", "Pruner", "Sampler"]
__all__ += arm.__all__
__all__ += claims.__all__
__all__ += codec.__all__
__all__ += loss.__all__
__all__ += metric_names.__all__
__all__ += recipe.__all__
__all__ += regime_conditions.__all__
__all__ += search_rules.__all__
__all__ += searches.__all__
__all__ += smoke.__all__
__all__ += space.__all__
__all__ += study.__all__
__all__ += trial.__all__
