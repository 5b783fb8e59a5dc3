"""A cluster with another version: what the line says, by what differs and by what this package supports."""

from __future__ import annotations

import pytest

from topk_platform.running.cluster import versions
from topk_platform.running.cluster.versions import OtherVersionError, Versions, version_error

HERE = Versions("2.60.0", "3.11.7")


@pytest.mark.parametrize(
    ("cluster", "remedy"),
    [
        (Versions("2.59.0", "3.11.7"), ["run here", "ray[tune]==2.59.0"]),
        (Versions("2.60.0", "3.12.1"), ["Python 3.12.1", "ray[tune]==2.60.0"]),
        (Versions("2.40.0", "3.12.1"), ["ray>=2.44,<3", "every node of the cluster", "ray[tune]==2.60.0"]),
    ],
)
def test_the_line_has_both_versions_and_what_to_install(
    cluster: Versions, remedy: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "platform_requirements", lambda: {"ray": ">=2.44,<3"})
    error = OtherVersionError("10.0.0.1:6379", cluster, HERE)
    assert all(part in error.remedy for part in remedy)
    assert all(part in error.problem for part in (*cluster, *HERE, "10.0.0.1:6379"))


def test_other_messages_of_ray_are_no_mismatch() -> None:
    assert version_error("Could not connect to the GCS: Ray: 2.60.0", "10.0.0.1:6379") is None
