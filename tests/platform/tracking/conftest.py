from __future__ import annotations

from collections.abc import Callable

import pytest
from made_records import make_record, make_study, make_wider_study

from topk_platform import Study
from topk_platform.specs import TrialRecord


@pytest.fixture
def study() -> Study:
    return make_study()


@pytest.fixture
def wider_study() -> Study:
    return make_wider_study()


@pytest.fixture
def record() -> Callable[..., TrialRecord]:
    return make_record
