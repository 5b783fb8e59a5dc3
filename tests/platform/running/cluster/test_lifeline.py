"""What becomes of a run whose Ray is gone: it hears of it, or is ended."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from topk_platform.cli.consoles import Exit
from topk_platform.running.cluster import lifeline
from topk_platform.running.cluster.lifeline import GONE_CODE, HEAD, RAYLET, Lifeline, LostRayError

MUTE = """
import socket, sys, threading
from topk_platform.running.cluster import lifeline
lifeline._END_SECONDS = 0.2
servers = {name: socket.create_server(("127.0.0.1", 0)) for name in ("GCS", "raylet")}
lifeline.Lifeline().watch({name: server.getsockname() for name, server in servers.items()})
servers[sys.argv[1]].close()
threading.Event().wait()
"""


@contextmanager
def watched(servers: dict[str, socket.socket], patience: float = 0.0) -> Iterator[Lifeline]:
    line = Lifeline()
    line.watch({name: server.getsockname() for name, server in servers.items()}, patience)
    yield line
    line.stop()


@pytest.fixture
def servers() -> Iterator[dict[str, socket.socket]]:
    """Sockets that listen in the place of Ray's processes."""
    listening = {name: socket.create_server(("127.0.0.1", 0)) for name in (HEAD, RAYLET)}
    yield listening
    for server in listening.values():
        server.close()


def ask(line: Lifeline) -> None:
    """Ask as Tune's callback does, once the thread has seen that Ray is gone."""
    assert line._lost.wait(600)
    line.check()


@pytest.mark.parametrize("victim", [HEAD, RAYLET])
def test_who_asks_gets_the_error(victim: str, servers: dict[str, socket.socket]) -> None:
    port = servers[victim].getsockname()[1]
    with watched(servers) as line:
        line.check()
        servers[victim].close()
        with pytest.raises(LostRayError, match=rf"Ray's {victim} at 127\.0\.0\.1:{port} does not"):
            ask(line)
        assert line.headless == (victim == HEAD)


def test_a_head_that_may_come_back_is_waited_for_and_a_raylet_is_not(
    servers: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    listens, missed = lifeline._listens, threading.Event()

    def noted(address: tuple[str, int]) -> bool:
        answered = listens(address)
        if not answered:
            missed.set()
        return answered

    monkeypatch.setattr(lifeline, "_listens", noted)
    with watched(servers, patience=60) as line:  # it looks every 3 s
        servers[HEAD].close()
        assert missed.wait(600)
        line.check()
        servers[RAYLET].close()
        with pytest.raises(LostRayError, match="raylet") as caught:
            ask(line)
        assert "GCS" not in str(caught.value) and not line.headless


def test_a_ray_that_nobody_watches_is_never_gone() -> None:
    Lifeline().check()


@pytest.mark.parametrize("victim", [HEAD, RAYLET])
def test_who_does_not_ask_is_ended_with_a_line_and_the_code_of_a_fault(victim: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MUTE, victim], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == GONE_CODE == Exit.OPEN
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"topk: Ray's {victim} at ") and line.endswith(
        "; the same command goes on from here"
    )
