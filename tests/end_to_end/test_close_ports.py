"""Ray's ports are reached on one address of a machine, and from its network alone, once the script has closed them."""

from __future__ import annotations

import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
from hosts import Host, network, on_hosts

pytestmark = on_hosts("" if shutil.which("nft") else "needs nft")

SCRIPT = Path(__file__).parents[2] / "deploy" / "close-ports.sh"
LISTEN = (
    "import socket, time; s = [socket.create_server(('', p)) for p in (6379, 20005, 8000)]; time.sleep(600)"
)
OTHER = "10.99.0.1"


def reached(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def listens(host: Host) -> bool:
    return "20005" in host.run(["ss", "-ltnH"])


def test_rays_ports_are_closed_but_on_one_address(tmp_path: Path) -> None:
    with network(tmp_path) as net:
        host = net.host("head")
        host.run(["ip", "address", "add", f"{OTHER}/32", "dev", "eth0"])
        net.route(OTHER, host)
        host.start([sys.executable, "-c", LISTEN])
        while not listens(host):
            time.sleep(0.05)
        assert all(reached(address, 6379) for address in (host.address, OTHER))
        subnet = host.address.rpartition(".")[0] + ".0/24"
        host.run([SCRIPT, host.address, subnet])
        assert [reached(host.address, port) for port in (6379, 20005, 8000)] == [True] * 3
        assert [reached(OTHER, port) for port in (6379, 20005, 8000)] == [False, False, True]
        host.run([SCRIPT, host.address, "192.0.2.0/24"])  # this process is in another network
        assert not reached(host.address, 6379)
        for refused in ([], ["head"], [host.address, f"{subnet}9"]):  # the ports stay as they are
            with pytest.raises(RuntimeError):
                host.run([SCRIPT, *refused])
            assert not reached(host.address, 6379)
        host.run([SCRIPT, "--open"])
        assert reached(OTHER, 20005)
