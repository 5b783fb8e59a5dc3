"""A study that is done is told from what was noted of the machine, unless anything that decides it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform import Regime
from topk_platform.data import load
from topk_platform.records import Store
from topk_platform.running import remembered
from topk_platform.running.remembered import light_fingerprint, note_environment, noted_environment


def test_the_light_fingerprint_is_the_datasets() -> None:
    regime = Regime("r", "digits")
    assert light_fingerprint(regime) == load(regime).fingerprint


def test_of_other_data_there_is_none() -> None:
    assert light_fingerprint(Regime("r", "ring")) is None


def test_what_was_noted_holds_while_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, environment = Store.open(tmp_path), {"torch": "1", "machine": "m", "losses": "torch"}
    assert noted_environment(store) is None
    note_environment(store, environment)
    assert noted_environment(store) == environment
    monkeypatch.setenv(
        "ATEN_CPU_CAPABILITY", "default"
    )  # by which torch takes fewer of the processor's instructions
    assert noted_environment(store) is None
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    assert noted_environment(store) == environment
    monkeypatch.setattr(remembered, "_version", lambda package: "another")
    assert noted_environment(store) is None


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"{}"])
def test_what_is_damaged_is_found_anew(tmp_path: Path, damaged: bytes) -> None:
    store = Store.open(tmp_path)
    store.write("environment.json", damaged)
    assert noted_environment(store) is None
