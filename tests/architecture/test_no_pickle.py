"""Whoever can write a store or a data folder runs no code where it is read: nothing is unpickled."""

from __future__ import annotations

import ast
import hashlib
import io
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store
from topk_platform.specs import Arm, Loss, Model, Recipe, Regime, Trial

ROOT = Path(__file__).parents[2]
SOURCES = [path for root in ("platform", "losses", "studies") for path in (ROOT / root).rglob("*.py")]
SOURCES = [path for path in SOURCES if "testing" not in path.parts]

# CIFAR-100 is distributed as pickles; they are read after their published MD5 sums were compared.
ALLOWED = {("cifar.py", "pickle.load")}
UNPICKLING = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads"),
    *("ray.cloudpickle.loads", "dill.load", "dill.loads", "joblib.load", "marshal.load", "marshal.loads"),
    *("shelve.open", "pandas.read_pickle", "pd.read_pickle", "jsonpickle.decode"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load"),
}
# By the keyword that keeps a reader from unpickling, and what it is where it is left out.
ONLY_WITH = {
    "torch.load": ("weights_only", True, False),
    "np.load": ("allow_pickle", False, False),
    "numpy.load": ("allow_pickle", False, False),
}


LAST_NAMES = {name.rpartition(".")[2] for name in (*UNPICKLING, *ONLY_WITH)}


def calls(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, dict[str | None, object]]]:
    """What is called by a dotted name that ends as one of these do, with the keywords whose values are written out."""
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in LAST_NAMES:
            keywords = {k.arg: getattr(k.value, "value", k.value) for k in node.keywords}
            yield ast.unparse(node.func), keywords


def last_name(function: ast.expr) -> str:
    """The last part of a dotted name, or nothing."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _kept_from(name: str, keywords: dict[str | None, object]) -> bool:
    """Whether a call is no reader's, or one of a reader that is kept from unpickling."""
    if name not in ONLY_WITH:
        return True
    keyword, safe, otherwise = ONLY_WITH[name]
    return keywords.get(keyword, otherwise) is safe


def unsafe(path: str, source: str) -> list[str]:
    """The calls of a source that may unpickle what they read."""
    nodes = list(ast.walk(ast.parse(source)))
    result = [name for name, keywords in calls(nodes) if name in UNPICKLING or not _kept_from(name, keywords)]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    # By a name of its own it would not be seen above.
    result += sorted(names & (UNPICKLING | ONLY_WITH.keys()))
    return [name for name in result if (Path(path).name, name) not in ALLOWED]


def test_nothing_is_unpickled() -> None:
    assert len(SOURCES) > 100
    result = {str(path): unsafe(str(path), path.read_text()) for path in SOURCES}
    assert {path: names for path, names in result.items() if names} == {}


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
    assert unsafe("store.py", line)


class Trap:
    """What, unpickled, makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_a_checkpoint_that_somebody_else_wrote_runs_nothing(tmp_path: Path) -> None:
    arm = Arm(Regime("r", "digits"), Model("linear"), Loss("cross_entropy"), k=3, recipe=Recipe(1))
    trial = Trial("s", "a", arm, (3,), "search", 0, 0, 0, {}, dataset_fingerprint="f", code_version="c")
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
