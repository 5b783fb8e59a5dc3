"""A cluster with another version: what the line says, by what differs and by what this package supports."""

from __future__ import annotations

import pytest

from topk_platform.running.cluster import reaching

MESSAGE = (
    "Version mismatch: The cluster was started with: Ray: {} Python: {} This process was started with: Ray: 2.60.0 "
    "Python: 3.11.7"
)


@pytest.mark.parametrize(
    ("ray", "python", "remedy"),
    [
        ("2.59.0", "3.11.7", ["run here", "ray[tune]==2.59.0"]),
        ("2.60.0", "3.12.1", ["Python 3.12.1", "ray[tune]==2.60.0"]),
        ("2.40.0", "3.12.1", ["ray>=2.44,<3", "every node", "ray[tune]==2.60.0"]),
    ],
)
def test_the_line_has_both_versions_and_what_to_install(
    ray: str, python: str, remedy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "requirements", lambda: {"ray": ">=2.44,<3"})
    problem, _, advice = reaching.mismatch(MESSAGE.format(ray, python), "10.0.0.1:6379").partition("7: ")
    assert all(part in advice for part in remedy)
    assert all(part in problem for part in (f"Ray {ray} with Python {python}", "Ray 2.60.0", "10.0.0.1:6379"))


def test_other_messages_of_ray_are_no_mismatch() -> None:
    assert not reaching.mismatch("Could not connect to the GCS: Ray: 2.60.0", "10.0.0.1:6379")
