"""Whoever can write a store or a data folder runs no code where it is read: nothing is unpickled."""

from __future__ import annotations

import ast
import hashlib
import io
import pickle
import re
from pathlib import Path

import pytest
import torch
from made_records import make_record, make_study

from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store

ROOT = Path(__file__).parents[2]
SOURCES = [path for root in ("platform", "losses", "studies") for path in (ROOT / root).rglob("*.py")]
SOURCES = [path for path in SOURCES if "testing" not in path.parts]

UNPICKLING = re.compile(
    r"(ray\.)?(pickle|cloudpickle|dill|joblib|jsonpickle|marshal|shelve|yaml)\."
    r"(load|loads|decode|open|Unpickler|unsafe_load|full_load)\(|(pandas|pd)\.read_pickle\("
    r"|torch\.load\((?!.*weights_only=True)|(np|numpy)\.load\(.*allow_pickle=(?!False)"
)
BY_ANOTHER_NAME = re.compile(
    r"from (?:[\w.]*pickle|dill|joblib|marshal|torch|numpy|yaml) import .*\bloads?\b"
)


def unsafe(source: str) -> list[str]:
    """Return the calls and imports of a source by which it may unpickle what it reads."""
    tree = ast.parse(source if re.search(r"load|pickle|shelve", source) else "")
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [*filter(UNPICKLING.match, calls), *BY_ANOTHER_NAME.findall(source)]


def test_nothing_is_unpickled() -> None:
    assert len(SOURCES) > 100
    result = {(path.name, call) for path in SOURCES for call in unsafe(path.read_text())}
    assert not result  # torchvision reads CIFAR-100's pickles after it has compared their MD5 sums


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(store.read('x'))",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file, allow_pickle=True)",
        "yaml.load(text, Loader)",
        "from pickle import loads",
    ],
)
def test_the_search_would_find_it(line: str) -> None:
    assert unsafe(line)


class Trap:
    """What, unpickled, makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_a_checkpoint_that_somebody_else_wrote_runs_nothing(tmp_path: Path) -> None:
    trial = make_record(make_study()).trial
    buffer = io.BytesIO()
    torch.save({"epoch": Trap(tmp_path / "run")}, buffer)
    pickle.loads(pickle.dumps(Trap(tmp_path / "armed")))  # noqa: S301 - the trap works
    assert (tmp_path / "armed").exists()
    data = buffer.getvalue()
    keeper = StoreKeeper(Store.open(tmp_path), 0.0)
    keeper.store.write(f"checkpoints/{trial.key}/000000000001.ckpt", hashlib.sha256(data).digest() + data)
    (name,) = keeper.store.names(f"checkpoints/{trial.key}")
    with pytest.warns(UserWarning, match=f"{name}.* cannot be used and is skipped"):
        assert keeper.load([trial]) is None
    assert not (tmp_path / "run").exists()
