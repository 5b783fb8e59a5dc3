"""Commands that only read, and all that say what is wrong with what was typed, load nothing that takes seconds."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from topk_platform import Study
from topk_platform.cli.app import COMMANDS, load_command
from topk_platform.running.counted import in_environment
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Trial
from topk_platform.testing import fake_run
from topk_platform.training import environment

SLOW = {
    *("torch", "torchvision", "ray", "mlflow", "optuna", "sklearn", "numba", "pandas", "duckdb", "matplotlib")
}

LAB = """
from topk_platform import Claim, Contrast, Float, Loss, Model, Recipe, Regime, Study, grid

RATE = {"learning_rate": Float(0.01, 1)}
LOSSES = [Loss(name, RATE, {"learning_rate": 0.1}) for name in ("cross_entropy", "smooth_topk_svm")]

def study():
    arms = grid([Regime("r", "digits")], [Model("linear")], LOSSES, k=3, recipe=Recipe(1))
    gap = Contrast.between(arms[1].name, arms[0].name, "top3")
    told = {"name": "level", "text": "They are level.", "source": "me"}
    claims = [Claim(**told, contrasts=[gap], direction="within", tolerance=1)]
    return Study("light", arms, topk=(1, 3), trials=2, seeds=3, claims=claims)
def bad_recipe(): return Recipe(epochs=0)
"""

# Commands one after another in a process, with what each ended with, wrote, and had loaded by then that is slow.
SEVERAL = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from topk_platform.cli import main
def outcome(arguments):
    sys.argv, out, err, code = ["topk", *arguments], io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    return code, out.getvalue(), err.getvalue(), sorted({SLOW!r} & set(sys.modules))
print(json.dumps([outcome(arguments) for arguments in json.load(sys.stdin)]))
"""

Outcome = tuple[int, str, str, list[str]]


def python(folder: Path, code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, without the folder of datasets that the tests use."""
    environment = {name: value for name, value in os.environ.items() if name != "TOPK_DATA"}
    environment |= {"COLUMNS": "200"}
    program = [sys.executable, "-c", code]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, **options)


def topk(folder: Path, *commands: str) -> dict[str, Outcome]:
    """Run commands in one process: whatever one of them loads shows in those behind it as well."""
    done = python(folder, SEVERAL, input=json.dumps([command.split() for command in commands]), check=True)
    return dict(zip(commands, map(tuple, json.loads(done.stdout)), strict=True))


def write_ended(study: Study, store: Path) -> str:
    """Write a record of every trial of a study, as if all had run, and return one's key."""
    counted = in_environment(study, check_study(study), environment("cpu"))

    def score(trial: Trial) -> dict[str, float]:
        return dict.fromkeys(study.metrics, 0.5 + trial.seed / 100)

    return fake_run(study, store, score, identities=counted).keys()[0]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with a study and a store in which all of it has ended, and the key of one of its trials."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "light_lab.py").write_text(LAB)
    key = write_ended(runpy.run_path(str(folder / "light_lab.py"))["study"](), folder / "runs")
    (folder / "runs" / "mlflow.db").touch()
    return folder, key


READING = (
    ("--help", "Usage"),
    ("run --help", "--retry-failed"),
    ("list", "30 arms"),
    ("--version", "topk "),
    ("status", "10 trials ended"),
    ("replay KEY --no-train", "completed"),
    ("table light_lab:study", "52.0"),
    ("table light_lab:study --format md", "3 seeds"),
    ("table light_lab:study --format csv", "cross_entropy,r,top1,"),
    ("table berrada2018_noise", "published"),
    ("table light_lab:study --claims", "They are level."),
    ("table berrada2018_noise --claims --format csv", "waits for data"),
    ("plan light_lab:study", "0 trials left"),
    ("export light_lab:study --format csv --to light.csv", "wrote light.csv"),
)

# Every command that reads, with what its JSON has at the top: an object's names, or those of a list's first object.
AS_JSON = (
    ("list", {"studies", "findings_only", "losses", "regimes"}),
    ("status", {"study", "arms", "left", "recorded", "not_counted", "notes"}),
    ("plan light_lab:study", {"study", "left", "seconds", "arms"}),
    ("replay KEY --no-train", {"key", "arm", "status", "config", "epochs", "validation.top3"}),
    ("table light_lab:study", {"loss", "metric", "mean", "n"}),
    ("table light_lab:study --claims", {"claim", "verdict", "measured"}),
)
BESIDE = {
    "run": "its events: tests/platform/cli/run/test_view.py",
    "predict": "needs a network: tests/platform/serving/test_serving.py",
}

WRONG = (
    ("run light_lab:studdy", "did you mean 'study'"),
    ("run light_lab:bad_recipe", "Recipe.epochs must be at least 1"),
    ("run digits --wrokers 2", "No such option"),
    ("run digits --workers 0", "workers must be at least 1 or None, got 0"),
    ("run digits --trials 0", "trials must be at least 1, got 0"),
    ("run digits --only nothing*", "matches no arm"),
    ("run digits --checkpoints -1", "checkpoints must be at least 0, got -1.0"),
    ("run digits --address nowhere", "--address must be host:port"),
    ("run digits --store /proc/runs", "cannot be written"),
    ("run digits --store nosuch://bucket", "cannot be opened"),
    ("plan digits --only nothing*", "matches no arm"),
    ("table digit", "did you mean 'digits'"),
    ("table digits --format xml", "--format must be rich, md, csv, latex or html"),
    ("table digits", "holds nothing of study 'digits'"),
    ("plot digits topk --to map.jpg", "--to must end in .svg, .png or .pdf"),
    ("plot digits topkk", "did you mean 'topk'"),
    ("plot digits topk", "holds nothing of study 'digits'"),
    ("report digits --to page.txt", "--to must end in .html"),
    ("report digits", "holds nothing of study 'digits'"),
    ("table digits --json --format md", "--json and --format md exclude each other"),
    ("status --watch --json", "--watch and --json exclude each other"),
    ("run digits --quiet --json", "--quiet and --json exclude each other"),
    ("run digits --tune-table --json", "--tune-table and --json exclude each other"),
    ("table digits --claims", "has no claims"),
    ("table ring --claims --format html", "--format must be rich, md or csv"),
    ("table ring --claims --metric top1", "--metric, --by, --only and --seeds are for a table"),
    ("export digits --format csv --to x.csv", "holds nothing of study 'digits'"),
    ("export digits --format csv --to x.csv --note n", "--note is for --format findings"),
    ("table digit.gz", "must be a file of findings"),
    ("table digit.gz --trials 2", "--trials need results in a store"),
    ("table digit.gz --store here", "--store need results in a store"),
    ("plot digit.gz differences --data here", "--data is for the plot"),
    ("predict nothing x.png", "must be a folder of `topk export --arm`"),
    ("plan digits --mlflow http://127.0.0.1:9", "--mlflow is for --address"),
    ("replay abc", "got 0 trials"),
    ("ui --store typo", "holds no MLflow database"),
    ("ui --port 99999", "cannot listen on"),
)


@pytest.fixture(scope="module")
def outcomes(lab: tuple[Path, str]) -> dict[str, Outcome]:
    folder, key = lab
    commands = [command for command, _ in (*READING, *WRONG)]
    commands += [f"{command} --json" for command, _ in AS_JSON]
    results = topk(folder, *(command.replace("KEY", key) for command in commands))
    return dict(zip(commands, results.values(), strict=True))


@pytest.mark.parametrize(("command", "shown"), READING)
def test_what_only_reads_is_light(outcomes: dict[str, Outcome], command: str, shown: str) -> None:
    code, out, err, loaded = outcomes[command]
    assert (code, err) == (0, "")
    assert shown in out
    assert loaded == []


@pytest.mark.parametrize(("command", "names"), AS_JSON)
def test_what_reads_prints_json_for_programs(
    outcomes: dict[str, Outcome], command: str, names: set[str]
) -> None:
    code, out, err, loaded = outcomes[f"{command} --json"]
    assert (code, err, loaded) == (0, "", [])
    result = json.loads(out)
    assert names <= set(result if isinstance(result, dict) else result[0])


def test_every_command_that_takes_json_is_among_them() -> None:
    taking = {name for name in COMMANDS if any("--json" in p.opts for p in load_command(name).params)}
    assert taking == {command.split()[0] for command, _ in AS_JSON} | set(BESIDE)


@pytest.mark.parametrize(("command", "message"), WRONG)
def test_what_was_typed_wrong_is_told_without_waiting(
    outcomes: dict[str, Outcome], command: str, message: str
) -> None:
    code, out, err, loaded = outcomes[command]
    assert (code, out) == (2, "")
    assert message in err
    assert loaded == []


def test_scripts_that_read_are_light_too(lab: tuple[Path, str]) -> None:
    code = (
        "import sys; from topk_platform import plan, table; from light_lab import study;"
        f"print(table(study()).rows, plan(study()).left, sorted({SLOW!r} & set(sys.modules)))"
    )
    done = python(lab[0], code)
    expected = "('cross_entropy', 'smooth_topk_svm') 0 []\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_to_define_a_study_loads_nothing_heavy() -> None:
    code = (
        "import sys, topk_studies; [make() for make in topk_studies.STUDIES.values()];"
        f"print(sorted({SLOW | {'pyarrow', 'scipy'}!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_study_that_is_done_starts_no_ray(
    lab: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run puts into MLflow what it lacks, report and plots among it; the second draws nothing anew."""
    monkeypatch.setenv("TOPK_REPORT", "on")
    folder = shutil.copytree(lab[0], tmp_path / "lab")
    (folder / "runs" / "mlflow.db").unlink()
    for drawn in (True, False):
        ((code, out, err, loaded),) = topk(folder, "run light_lab:study").values()
        assert (code, err) == (0, "")
        assert "0 trials ran" in out
        assert "ray" not in loaded and ("matplotlib" in loaded) == drawn
        (report,) = (folder / "runs" / "mlflow-artifacts").glob("*/*/artifacts/report.html")
        assert "They are level." in report.read_text()
        assert (report.parent / "plots" / "differences.svg").is_file()
