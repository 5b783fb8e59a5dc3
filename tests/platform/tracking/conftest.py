from __future__ import annotations

import pytest
from made_records import make_study

from topk_platform import Study


@pytest.fixture
def study() -> Study:
    return make_study()
