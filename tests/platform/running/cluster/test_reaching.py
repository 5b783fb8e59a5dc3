"""A cluster with another version: what the line says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from topk_platform.errors import ClusterError, UserError
from topk_platform.running.cluster import reaching
from topk_platform.running.cluster.reaching import NotYetError, Patience

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


@dataclass
class World:
    """A clock that passes while somebody sleeps, and what was told."""

    now: float = 0.0
    messages: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def patience(self, seconds: float | None) -> Patience:
        return Patience(seconds, self.messages.append, lambda: self.now, self.sleep)

    def there_at(self, moment: float, *lacks: str) -> Callable[[], float]:
        def ask() -> float:
            if self.now >= moment:
                return self.now
            raise NotYetError(lacks[min(int(self.now), len(lacks) - 1)])

        return ask


def test_what_comes_in_time_is_waited_for_and_reported_once_for_each_reason() -> None:
    world = World()
    assert world.patience(10).until(world.there_at(5, "no head", "no head", "no node")) == 5
    assert [line.partition(";")[0] for line in world.messages] == ["no head", "no node"]


@pytest.mark.parametrize(("seconds", "waited"), [(None, 60), (90.0, 90), (0.0, 0)])
def test_it_is_given_up_in_one_line(seconds: float | None, waited: int) -> None:
    world = World()
    with pytest.raises(ClusterError, match=f"^no head( .*waited {waited} s.*)?$"):
        world.patience(seconds).until(world.there_at(1000, "no head"))
    assert world.now == waited


def test_what_is_wrong_for_good_is_not_waited_for() -> None:
    def wrong() -> None:
        raise ClusterError("--address must be host:port")

    world = World()
    with pytest.raises(ClusterError, match="must be"):
        world.patience(60).until(wrong)
    assert world.now == 0 and world.messages == []


def test_a_time_below_zero_is_refused() -> None:
    with pytest.raises(UserError, match="wait"):
        Patience(-1)
