"""A study that is done is told from what was noted of the machine, unless anything that decides it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform import Loss, Model, Recipe, Regime, Study, grid
from topk_platform.data import load
from topk_platform.identity import Identity
from topk_platform.records import Store
from topk_platform.running.driver import remembered
from topk_platform.running.driver.remembered import Noted, note, noted

ENVIRONMENT = {"torch": "1", "machine": "m", "losses": "torch"}


def study() -> Study:
    others = [Regime("r", "ring"), Regime("o", "letters", options={"file": "x"})]
    regimes = [Regime("d", "digits"), Regime("l", "letters"), *others]
    arms = grid(regimes, [Model("mlp")], [Loss("cross_entropy")], k=3, recipe=Recipe(1))
    return Study("s", arms, topk=(1, 3), trials=1, seeds=1)


def identities() -> dict[str, Identity]:
    return {study().arm_id(arm): Identity("c", f"of {arm.regime.name}") for arm in study().arms}


def test_what_was_noted_holds_while_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the data that the package holds alone; of files elsewhere it could not be told that they are the same."""
    store = Store.open(tmp_path)
    assert noted(store) is None
    note(store, ENVIRONMENT, study(), identities())
    expected = Noted(ENVIRONMENT, {"digits": "of d", "letters": "of l"})
    assert noted(store) == expected
    # By which torch takes fewer of the processor's instructions.
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert noted(store) is None
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    assert noted(store) == expected
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "_version", lambda package: "another")
        assert noted(store) is None
    for name in ("digits", "letters"):
        (tmp_path / f"{name}.npz").write_bytes(b"other images")
    monkeypatch.setattr(remembered, "_DATA", tmp_path)
    assert noted(store) is None


def test_the_names_are_of_files_that_the_datasets_are_read_from() -> None:
    for name in remembered._PACKAGED:
        assert (remembered._DATA / f"{name}.npz").is_file()
        assert len(load(Regime("r", name)).test)


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"{}"])
def test_what_is_damaged_is_found_anew(tmp_path: Path, damaged: bytes) -> None:
    store = Store.open(tmp_path)
    store.write("environment.json", damaged)
    assert noted(store) is None
