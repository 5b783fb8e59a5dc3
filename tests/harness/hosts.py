"""Several hosts on one machine: each with its own network, file system, processes and name, on one switch.

What a host is made of is the kernel's: namespaces for network, mounts, processes and name, and an overlay over this
machine's files, so that a host has the same programs and keeps what it writes to itself. Wants root, ``ip``,
``unshare`` and ``nsenter``; see :func:`on_hosts`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

__all__ = ["Host", "Network", "network", "on_hosts"]

_TOOLS = ("ip", "unshare", "nsenter", "mount", "chroot")
_ALONE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
# Mounts a root of its own for what follows it, and waits until it is killed.
_INIT = """
mount --make-rprivate / && mkdir -p {folder}/upper {folder}/work {folder}/root
mount -t overlay overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work {folder}/root
cd {folder}/root && mount --rbind /sys sys && mount --rbind /dev dev && mount -t proc proc proc
mount -t tmpfs tmpfs dev/shm && mount -t tmpfs tmpfs tmp && mount -t tmpfs tmpfs run
for shared in {shared}; do mkdir -p .$shared && mount --bind $shared .$shared; done
hostname {name} && ip link set lo up && mkdir -p home/{name} && touch {folder}/ready
exec chroot . sleep infinity
"""


def refusal() -> str:
    """Return why no hosts can be made on this machine; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces on a bridge want root"
    needed = Path(__file__).resolve(), Path(sys.executable)
    if hidden := [str(path) for path in needed if path.parts[1] in {"tmp", "run"}]:
        return f"every host has /tmp and /run of its own, so that {hidden[0]} is not there"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)}"
    if subprocess.run([*_ALONE, "true"], check=False, capture_output=True).returncode:
        return "this system makes no namespaces"
    made = subprocess.run(
        ["ip", "link", "add", f"topk-{os.getpid()}", "type", "bridge"], check=False, capture_output=True
    )
    subprocess.run(["ip", "link", "delete", f"topk-{os.getpid()}"], check=False, capture_output=True)
    return "this system makes no bridges" if made.returncode else ""


def on_hosts(lacking: str = "") -> list[pytest.MarkDecorator]:
    """Return the marks of tests on hosts, which are left out where none can be made or something else is lacking."""
    why = refusal() or lacking
    marks = pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(3600)
    return [*marks, pytest.mark.skipif(bool(why), reason=why or "they can be made")]


@dataclass
class Host:
    """A machine of the network: ended with all its processes by :meth:`power_off`.

    Args:
        name: Its host name.
        address: Its address in the network.
        port: The switch's end of its cable.
        init: Its first process.
    """

    name: str
    address: str
    port: str
    init: subprocess.Popen[bytes]

    @property
    def home(self) -> str:
        """The home of its user, within its own root."""
        return f"/home/{self.name}"

    def start(
        self,
        command: Sequence[str | Path],
        output: IO[str] | int = subprocess.DEVNULL,
        cwd: str | Path = "/",
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start a command on it, with its own home and an environment of which nothing else is this machine's."""
        (inside,) = self._children()
        enter = ["nsenter", f"--target={inside}", "--net", "--mount", "--uts", "--ipc", "--pid", "--root"]
        there = ["--", "env", "-C", cwd, *command]
        return subprocess.Popen(
            [*enter, *map(str, there)],
            cwd="/",
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": self.home, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: Sequence[str | Path], **environment: str) -> str:
        """Run a command on it and return what it says; raise ``RuntimeError`` where it fails."""
        process = self.start(command, subprocess.PIPE, **environment)
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{command} on {self.name} ended with code {process.returncode}: {said}")
        return said

    def _children(self) -> list[str]:
        return Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()

    def plug(self, address: str, bridge: str) -> None:
        """Connect it to the switch."""
        (inside,) = self._children()
        _ip("link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("link", "set", self.port, "master", bridge, "up")
        self.run(["ip", "address", "add", f"{address}/24", "dev", "eth0"])
        self.run(["ip", "link", "set", "eth0", "up"])

    def power_off(self) -> None:
        """End all that runs on it at once, and take it from the network."""
        self.init.kill()  # and with it the first process of its kind, and with that all others
        self.init.wait()
        subprocess.run(["ip", "link", "delete", self.port], check=False, capture_output=True)


@dataclass
class Network:
    """A switch and the hosts on it; this process has an address on it as well.

    Args:
        folder: Where the hosts' own files lie.
        number: Which network, 10.NUMBER.0.0/24: networks of tests that run at once differ.
        shared: Folders that all hosts see as they are here.
    """

    folder: Path
    number: int
    shared: Sequence[Path] = ()
    hosts: list[Host] = field(default_factory=list)

    @property
    def bridge(self) -> str:
        """The switch's name."""
        return f"topk{self.number}"

    def host(self, name: str) -> Host:
        """Switch a host on; its address comes from its place, 10.NUMBER.0.1 for the first."""
        own = len(self.hosts) + 1
        folder = self.folder / name
        folder.mkdir()
        shared = " ".join(map(str, self.shared))
        script = _INIT.format(folder=folder, name=name, shared=shared)
        init = subprocess.Popen([*_ALONE, "sh", "-ec", script], cwd="/", start_new_session=True)
        host = Host(name, f"10.{self.number}.0.{own}", f"{self.bridge}p{own}", init)
        self.hosts.append(host)
        while not (folder / "ready").exists():
            if init.poll() is not None:
                raise RuntimeError(f"host {name} did not start: code {init.returncode}")
            time.sleep(0.02)
        host.plug(host.address, self.bridge)
        return host

    def cut(self, host: Host) -> None:
        """Pull a host's cable: what is sent to it is lost, without a word to either side."""
        _ip("link", "set", host.port, "nomaster")

    def route(self, address: str, host: Host) -> None:
        """Let this process reach one more address at a host, until the switch is gone."""
        _ip("route", "add", address, "via", host.address, "dev", self.bridge)

    def mend(self, host: Host) -> None:
        """Put it in again."""
        _ip("link", "set", host.port, "master", self.bridge)


@contextmanager
def network(folder: Path, *shared: Path) -> Iterator[Network]:
    """Make a network for as long as the block lasts; its hosts are switched off at the end.

    Args:
        folder: An empty one of this machine's disk, for the hosts' own files.
        shared: Folders that all hosts see as they are here.
    """
    made = _switch(folder, shared)
    try:
        yield made
    finally:
        for host in made.hosts:
            host.power_off()
        _ip("link", "delete", made.bridge)


def _switch(folder: Path, shared: Sequence[Path]) -> Network:
    for number in range(77, 177):
        made = Network(folder, number, shared)
        command = ["ip", "link", "add", made.bridge, "type", "bridge"]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            _ip("address", "add", f"10.{number}.0.254/24", "dev", made.bridge)
            _ip("link", "set", made.bridge, "up")
            return made
    raise RuntimeError("a hundred switches are there already: `ip link` shows them as topk77 to topk176")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
