"""Code that a file names: what we ship, what the user's study names, and modules that are trusted by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hostile
import pytest
from forks import Commands
from made_studies import searched, small_study
from shipped import studies
from trained_studies import train_study

from topk_platform import TPE, Loss, OptunaSampler, Protocol, Regime, UserError, export_model, load_model
from topk_platform.serving.flavor import _load_pyfunc
from topk_platform.specs import Sampler, Scalar
from topk_platform.trust import Trust

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
OWN = small_study(name="own", models=["own_network:pooled"], k=2, seeds=1)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported network of a user's own, from a study of the user's."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
        train_study(OWN, folder / "runs")
        export_model(OWN, OWN.arms[0].name, folder / "net", store=folder / "runs")
    return folder / "net"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def test_a_network_of_ones_own_is_built_where_its_module_is_trusted(own: Path, importable: None) -> None:
    for trust in ((), ("own",), ("own_network.more",)):
        with pytest.raises(
            UserError, match="its model is 'own_network:pooled', which is no code of this package"
        ):
            load_model(own, trust=trust)
    assert load_model(own, trust="own_network").config.arm == OWN.arms[0].name
    with pytest.raises(UserError, match=r"trust must name modules such as my_lab .*, got 'a:b'"):
        load_model(own, trust=["a:b"])


def test_mlflow_builds_it_where_the_environment_trusts_it(
    own: Path, importable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(own / "model.safetensors")
    monkeypatch.delenv("TOPK_TRUST", raising=False)
    with pytest.raises(UserError, match="MLflow: TOPK_TRUST=MODULE"):
        _load_pyfunc(file)
    monkeypatch.setenv("TOPK_TRUST", "other,own_network")
    assert _load_pyfunc(file).get_raw_model().config.arm == OWN.arms[0].name


@pytest.mark.parametrize("evil", ["os:system", "builtins:exec", "topk_platform.cli:main"])
def test_even_where_it_is_trusted_its_arguments_are_held_to_its_signature(
    evil: str, good: Path, topk: Commands
) -> None:
    """``os.system`` takes no shape, classes and head."""
    folder = hostile.mutated_folder(good / "good", good / "evil", "references", 0)
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= {"name": evil, "options": hostile._options(evil)}
    (folder / "config.json").write_text(json.dumps(config))
    ended = topk.run("predict", "evil", "x.npy", "--trust", evil.partition(":")[0])
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert "must be a function of shape, classes, head" in ended.err or "cannot be called" in ended.err
    assert not hostile.sung(good)


def test_a_record_of_a_store_names_files_of_ones_own_and_no_installed_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # The program is a script here, whatever program runs the tests.
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    (tmp_path / "mine_alone.py").write_text("raise SystemExit\n")
    for loss, trusted in (
        ("mine_alone:loss", True),
        ("nowhere_at_all:loss", True),  # which says so itself
        ("torch.hub:load", False),
        ("os:system", False),
        ("__main__:x", True),  # refused by whoever imports it
    ):
        (arm,) = small_study(Loss(loss, label="l"), baseline="l").arms
        trust = Trust().with_own_modules(arm)
        if trusted:
            trust.check_arm("trial", arm)
        else:
            with pytest.raises(UserError, match="trial: its loss is"):
                trust.check_arm("trial", arm)


@pytest.mark.parametrize(
    ("options", "sampler", "why"),
    [
        ({"of": "subprocess:run", "args": "true", "shell": True}, TPE(), "dataset is 'subprocess:run'"),
        ({"of": "letters", "backbone": "os:getcwd"}, TPE(), "backbone is 'os:getcwd'"),
        ({"of": "letters"}, OptunaSampler("os:getcwd"), "sampler is 'os:getcwd'"),
    ],
)
def test_what_features_are_computed_from_and_samplers_are_trusted_too(
    options: dict[str, Scalar], sampler: Sampler, why: str
) -> None:
    regime = Regime("r", "image_features", options=options)
    study = small_study(searched(), regimes=[regime], protocol=Protocol(sampler))
    with pytest.raises(UserError, match=f"trial: its {why}"):
        Trust().check_arm("trial", study.arms[0])
    Trust.of_study(study).check_arm("trial", study.arms[0])


def test_a_smoke_runs_stand_ins_are_ours() -> None:
    arms = [arm for study in studies().values() for arm in study.smoke().arms]
    for arm in arms:
        Trust().check_arm("x", arm)
    assert any(":" in arm.regime.dataset for arm in arms)
