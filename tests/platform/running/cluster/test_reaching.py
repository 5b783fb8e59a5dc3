"""A cluster with another version: what the line says."""

from __future__ import annotations

import pytest

from topk_platform.running.cluster import reaching

MESSAGE = (
    "Version mismatch: The cluster was started with: Ray: {} Python: {} This process was started with: Ray: 2.60.0 "
    "Python: 3.11.7"
)


@pytest.mark.parametrize(
    ("ray", "python"), [("2.59.0", "3.11.7"), ("2.60.0", "3.12.1"), ("2.40.0", "3.12.1")]
)
def test_the_line_has_both_versions_and_what_to_install(ray: str, python: str) -> None:
    problem, _, advice = reaching.mismatch(MESSAGE.format(ray, python), "10.0.0.1:6379").partition("7: ")
    assert f"Python {python}" in advice and f"ray[tune]=={ray}'" in advice
    assert all(part in problem for part in (f"Ray {ray} with Python {python}", "Ray 2.60.0", "10.0.0.1:6379"))


def test_other_messages_of_ray_are_no_mismatch() -> None:
    assert not reaching.mismatch("Could not connect to the GCS: Ray: 2.60.0", "10.0.0.1:6379")
