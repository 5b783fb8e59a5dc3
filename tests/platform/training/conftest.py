from __future__ import annotations

from collections.abc import Callable

import pytest
from small_trials import Memory, a_trial

from topk_platform.specs import Trial


@pytest.fixture
def memory() -> type[Memory]:
    return Memory


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    return a_trial
