"""Whether the store can be written, here and on every node, and is the same store everywhere."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from topk_platform.errors import StoreError, UserError
from topk_platform.records import Store
from topk_platform.running.preflight.doctor.results import CheckResult, Node

__all__ = ["check_replies", "check_store", "token"]

_FILE = ".doctor-"


def check_store(uri: str | Path, where: str) -> tuple[Store | None, CheckResult]:
    """Return the store (None if it cannot be used) and this machine's result about it.

    Args:
        uri: The store's folder or URI.
        where: This machine's name.
    """
    try:
        store = Store.open(uri)
        _check_written(store.existing)
    except UserError as error:
        remedy = "give another --store, or the rights and credentials for this one"
        return None, CheckResult("store", "wrong", str(error), remedy, [where])
    return store, CheckResult("store", "good", f"{store.uri}: can be written", "", [where])


def _check_written(store: Store) -> None:
    """Check writing, and exclusive creation: two drivers are kept apart by a file that only one of them can create."""
    store.check_writable()
    name = f"{_FILE}{uuid.uuid4().hex}"
    first, again = store.create(name, b""), store.create(name, b"")
    store.delete(name)
    if again or not first:
        raise StoreError(
            f"store {store.uri!r} lets two processes create the same file, which would destroy a ledger: its server "
            "must support conditional writes (If-None-Match)"
        )


@contextmanager
def token(store: Store | None) -> Iterator[str]:
    """Put a file into the store for as long as the block lasts, and yield its name; empty without a store."""
    if store is None:
        yield ""
        return
    name = f"{_FILE}{uuid.uuid4().hex}"
    store.existing.write(name, name.encode())
    try:
        yield name
    finally:
        store.existing.delete(name)


def check_replies(store: Store | None, nodes: Iterable[Node]) -> list[CheckResult]:
    """Check for each node that answered whether its file is visible here too, and delete the file."""
    if store is None:
        return []
    return [_check_reply(store, node) for node in nodes if node.facts is not None]


def _check_reply(store: Store, node: Node) -> CheckResult:
    assert node.facts is not None  # noqa: S101 - for the type checker: the caller has looked
    reply = node.facts.reply
    why = node.facts.problems.get("store", "") or _lost(store.existing, reply)
    if why:
        shared = (
            "a folder that all machines share, or s3://, gs:// or az://, with credentials on every machine"
        )
        return node.wrong("store", f"{store.uri}: {why}", f"give --store {shared}")
    store.existing.delete(reply)
    return node.good("store", f"{store.uri}: files written here can be read there, and vice versa")


def _lost(store: Store, reply: str) -> str:
    try:
        store.read(reply)
    except FileNotFoundError:
        return "the driver does not see the file that was written there"
    return ""
