"""One process drives a study; one that is gone, here or elsewhere, stands in nobody's way."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from topk_platform.errors import StoreError
from topk_platform.records.storage.lease import Holder, Lease, check_undriven, driven
from topk_platform.records.storage.store import Store


def left_by(store: Store, holder: Holder, number: int = 7) -> None:
    store.write(f"lease/{number:012d}.json", json.dumps(dataclasses.asdict(holder)).encode())


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store.open(tmp_path if request.param == "folder" else request.getfixturevalue("bucket"))


def test_it_is_one_process_at_a_time_and_gone_at_the_end(store: Store) -> None:
    with (
        Lease(store),
        pytest.raises(StoreError, match=r"is being written by another process: process \d+ on .*, since 20"),
        Lease(store),
    ):
        pytest.fail("two")
    assert store.names("lease") == []
    assert driven(store) == "nobody drives it"
    with Lease(store):
        assert driven(store).startswith(f"driven by process {os.getpid()} on ")
        assert len(store.names("lease")) == 1
        with pytest.raises(StoreError, match=f"by another process: process {os.getpid()} on "):
            check_undriven(store)
        assert len(store.names("lease")) == 1
    check_undriven(store)
    assert store.names("lease") == []


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(store: Store) -> None:
    code = "from topk_platform.records.storage import lease; import json; print(json.dumps(vars(lease.Holder.me())))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    gone = Holder(**json.loads(ended.stdout))
    assert gone.is_here and not gone.is_alive
    left_by(store, gone)
    assert driven(store).startswith(
        f"nobody drives it: process {gone.pid} on {gone.host}, since {gone.since}"
    )
    with Lease(store, seconds=10**6):  # waited for, it would never end
        assert store.names("lease") == ["000000000008.json"]


def test_a_process_elsewhere_that_does_not_renew_has_lost_it(store: Store) -> None:
    left_by(store, Holder("far", 1, "long ago", "another machine", "0", "an hour ago"))
    check_undriven(store)  # which shows when the lease is taken
    assert re.match("driven by process 1 on far, since long ago, .* at an hour ago$", driven(store))
    with Lease(store, seconds=0.3) as lease:
        assert not lease.lost


def test_one_cut_off_in_its_middle_is_as_one_that_does_not_renew(store: Store) -> None:
    store.write("lease/000000000003.json", b"")
    with Lease(store, seconds=0.3):
        assert "000000000003.json" not in store.names("lease")


@pytest.mark.slow
def test_a_process_elsewhere_that_renews_holds_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Holder("far", 1, "today", "another machine", "0")
    monkeypatch.setattr(Holder, "me", classmethod(lambda _: far))
    with (
        Lease(store, seconds=0.3),
        pytest.raises(StoreError, match="process 1 on far"),
        Lease(store, seconds=60.0),
    ):
        pytest.fail("two")


def test_a_renewal_that_is_reported_as_failed_though_it_was_made_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose answer was lost on its way from an object store."""
    original, calls, renewed = Store.create, count(1), threading.Event()

    def create(self: Store, name: str, data: bytes) -> bool:
        created = original(self, name, data)
        if (call := next(calls)) == 2:
            raise StoreError("the connection was closed")
        if call > 4:
            renewed.set()
        return created

    monkeypatch.setattr(Store, "create", create)
    with Lease(Store.open(tmp_path), seconds=0.03) as lease:
        assert renewed.wait(60) and not lease.lost
    assert driven(Store.open(tmp_path)) == "nobody drives it"


@pytest.mark.slow
def test_one_that_was_taken_away_says_so(store: Store) -> None:
    other = json.dumps(dataclasses.asdict(dataclasses.replace(Holder.me(), pid=1))).encode()
    with Lease(store, seconds=0.03) as lease:
        for number in range(1, 400):  # whichever number is next, it is another's
            store.create(f"lease/{number:012d}.json", other)
        lease._renewing.join(60)
        assert "another process has taken over: process" in lease.lost
