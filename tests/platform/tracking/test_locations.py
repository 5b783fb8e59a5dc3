"""That a study's MLflow runs go elsewhere than before is told once, without passwords."""

from __future__ import annotations

from pathlib import Path

from topk_platform.records import Store
from topk_platform.tracking import moved


def test_another_place_is_reported_once_and_the_first_and_the_same_are_not(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert moved(store, None) == "" and store.names() == []
    server = "http://lab:s3cr3t@10.0.0.1:5000"
    assert moved(store, server) == moved(store, server) == ""
    line = moved(store, None)
    assert "http://lab:***@10.0.0.1:5000" in line
    assert "s3cr3t" not in line + "".join(store.read(name).decode() for name in store.names())
    assert moved(store, None) == moved(store, server) == ""
    assert "http://10.0.0.2:5000" in moved(store, "http://10.0.0.2:5000")
