"""How long a cluster that is starting is waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from topk_platform.errors import ClusterError
from topk_platform.running.cluster import reaching
from topk_platform.running.cluster.reaching import NotYetError, Patience


@dataclass
class World:
    """A clock that passes while somebody sleeps, and what was told."""

    now: float = 0.0
    messages: list[str] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def patience(self, seconds: float | None) -> Patience:
        return Patience(seconds, self.messages.append)

    def there_at(self, moment: float, *lacks: str) -> Callable[[], float]:
        def ask() -> float:
            if self.now >= moment:
                return self.now
            raise NotYetError(lacks[min(int(self.now), len(lacks) - 1)])

        return ask


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(reaching, "time", made)
    return made


def test_what_comes_in_time_is_waited_for_and_reported_once_for_each_reason(world: World) -> None:
    assert world.patience(10).until(world.there_at(5, "no head", "no head", "no node")) == 5
    assert [line.partition(";")[0] for line in world.messages] == ["no head", "no node"]


@pytest.mark.parametrize(("seconds", "waited"), [(None, 60), (90.0, 90), (0.0, 0)])
def test_it_is_given_up_in_one_line(seconds: float | None, waited: int, world: World) -> None:
    with pytest.raises(ClusterError, match=f"^no head( .*waited {waited} s.*)?$"):
        world.patience(seconds).until(world.there_at(1000, "no head"))
    assert world.now == waited


def test_what_is_wrong_for_good_is_not_waited_for(world: World) -> None:
    def wrong() -> None:
        raise ClusterError("--address must be host:port")

    with pytest.raises(ClusterError, match="must be"):
        world.patience(60).until(wrong)
    assert world.now == 0 and world.messages == []
