from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform.errors import StoreError
from topk_platform.identity import Identity, Provenance
from topk_platform.records import ADOPTED, Evidence, Store, note_adopted, read_adopted, take_back

WAS = Provenance("old code", "data", "another machine")
HERE = Identity("new code", "data", {"machine": "this one"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A study's folder in which the results of two arms are adopted."""
    store = Store.open(tmp_path)
    evidence = Evidence("1 trained again, the same to the bit", [{"key": "0a"}], seed=0, within=None)
    arms = ("arm", "other")
    note_adopted(
        store, dict.fromkeys(arms, "name"), {arm: [WAS] for arm in arms}, dict.fromkeys(arms, HERE), evidence
    )
    return store


def test_what_is_adopted_is_read_back_until_it_is_taken_back(store: Store) -> None:
    (adopted,) = read_adopted(store)["arm"]
    assert (adopted.was, adopted.code_version) == (WAS, "new code")
    take_back(store, ["arm"])
    assert list(read_adopted(store)) == ["other"]


def test_a_changed_letter_is_damage(store: Store) -> None:
    """Another machine's name in it would let other rows count."""
    content = store.read(ADOPTED)
    store.write(ADOPTED, content.replace(b"another machine", b"another maschin"))
    with pytest.raises(StoreError, match=r"adopted\.json is damaged; put back a copy of it"):
        read_adopted(store)
    with pytest.raises(StoreError, match=r"adopted\.json is damaged"):
        take_back(store, ["arm"])
    assert b"another maschin" in store.read(ADOPTED)
