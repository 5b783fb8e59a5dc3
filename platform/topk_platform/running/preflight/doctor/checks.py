"""The checks of a diagnosis: from machines' facts to results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from topk_platform.running.machine.requirements import fits
from topk_platform.running.preflight.doctor.facts import ABSENT, Facts
from topk_platform.running.preflight.doctor.results import CheckResult, Node, State

__all__ = [
    "DECIDING",
    "check_any_gpu",
    "check_bits",
    "check_clock",
    "check_code",
    "check_data",
    "check_disk",
    "check_gpus",
    "check_machine",
    "check_modules",
    "check_python",
    "check_token",
    "check_versions",
]

_GIB = 2**30
_LITTLE, _TOO_LITTLE = 5 * _GIB, _GIB
# Records have the training machine's times; object stores refuse signed requests that are minutes off.
_SECONDS_OFF, _SECONDS_REFUSED = 2.0, 300.0
_BUSY = 0.5  # if a larger part of a GPU's memory is taken, another process must be using it
# With other versions of these, results differ or the processes do not understand each other.
DECIDING = ("torch", "torchvision", "numba", "ray", "optuna")
"""Packages that must have the driver's version on every machine."""


def check_machine(node: Node, facts: Facts) -> Iterator[CheckResult]:
    """Report the machine."""
    memory = f", {facts.memory / _GIB:.1f} GiB of memory available" if facts.memory else ""
    yield node.good("machine", f"{facts.host}, {facts.system}, {facts.cores} cores{memory}")


def check_python(driver: Facts, node: Node, facts: Facts) -> Iterator[CheckResult]:
    """Check that Python's version is exactly the driver's; otherwise Ray refuses the objects that it is sent."""
    if facts.python == driver.python:
        yield node.good("python", facts.python)
        return
    finding = f"{facts.python}, the driver's is {driver.python}"
    remedy = f"install Python {driver.python} there, or start the study from a machine with {facts.python}"
    yield node.wrong("python", finding, remedy)


def check_versions(
    driver: Facts, node: Node, facts: Facts, requirements: Mapping[str, str]
) -> Iterator[CheckResult]:
    """Check that packages have supported versions and, where results depend on it, the driver's versions."""
    wrong = {
        name: facts.packages[name]
        for name, expected in requirements.items()
        if not _takes(facts, name, expected)
    }
    differing = {
        name: facts.packages[name]
        for name in DECIDING
        if name not in wrong and facts.packages.get(name) != driver.packages.get(name)
    }
    for name, version in wrong.items():
        finding = f"{name} {version}, the platform takes {requirements[name] or 'any'}"
        yield node.wrong("versions", finding, f"pip install '{name}{requirements[name]}'")
    for name, version in differing.items():
        expected = driver.packages[name]
        finding = f"{name} {version}, the driver's is {expected}"
        yield node.wrong("versions", finding, f"there: pip install '{name}=={expected}'")
    if not (wrong or differing):
        finding = ", ".join(f"{name} {facts.packages[name]}" for name in DECIDING if name in facts.packages)
        yield node.good("versions", finding)


def _takes(facts: Facts, name: str, expected: str) -> bool:
    return facts.packages[name] != ABSENT and fits(facts.packages[name], expected)


def check_bits(nodes: Sequence[tuple[Node, Facts]], driver: Facts, device: str) -> Iterator[CheckResult]:
    """Check that all machines that train compute the same bits, compared with the majority of machines."""
    computing = [(node, facts) for node, facts in nodes if device == "cpu" or facts.gpus]
    for node, facts in nodes:
        if why := facts.problems.get("environment"):
            yield node.wrong("same bits", f"torch cannot report its environment: {why}", "repair torch there")
    known = [(node, facts.environment) for node, facts in computing if facts.environment]
    if not known:
        return
    votes = Counter(tuple(sorted(environment.items())) for _, environment in known)
    most = max(votes, key=lambda kind: (votes[kind], kind == tuple(sorted(driver.environment.items()))))
    for node, environment in known:
        yield _same_bits(node, environment, dict(most))


def _same_bits(node: Node, environment: Mapping[str, str], expected: Mapping[str, str]) -> CheckResult:
    differing = [
        f"{name} {environment.get(name)}, not {value}"
        for name, value in expected.items()
        if environment.get(name) != value
    ]
    if not differing:
        return node.good("same bits", ", ".join(environment.values()))
    remedy = "machines of one kind with the same packages, or the option --mixed of `topk run`: the table then says so"
    return node.wrong("same bits", "; ".join(differing), remedy)


def check_code(driver: Facts, node: Node, facts: Facts) -> Iterator[CheckResult]:
    """Check that the sources of losses, data, models and training are the driver's, byte for byte."""
    if why := facts.problems.get("code"):
        yield node.wrong("code", f"cannot be read: {why}", "install topk-studies there again")
    elif facts.code == driver.code:
        yield node.good("code", f"version {facts.code}")
    else:
        finding = f"version {facts.code}, the driver's is {driver.code}"
        yield node.wrong("code", finding, "remove other copies of the code from PYTHONPATH there")


def check_modules(node: Node, facts: Facts, references: Sequence[str]) -> Iterator[CheckResult]:
    """Check that the study's own modules can be imported."""
    problems = {name: facts.problems.get(f"reference {name}") for name in references}
    for why in filter(None, problems.values()):
        yield node.wrong("modules", why, "install there what the module imports")
    if references and not any(problems.values()):
        yield node.good("modules", ", ".join(references))


def check_data(driver: Facts, node: Node, facts: Facts, folder: str) -> Iterator[CheckResult]:
    """Check that the study's data are there and equal to the driver's; without a study, check their folder."""
    for name, expected in driver.data.items():
        why = facts.problems.get(f"data {name}")
        if why:
            remedy = (
                f"correct this on that machine; if a dataset is missing, put it into {folder} there, or name with "
                "--data a folder that has it on every machine"
            )
            yield node.wrong("data", f"{name}: {why}", remedy)
        elif facts.data[name] != expected and expected:
            finding = f"{name}: fingerprint {facts.data[name]}, the driver's is {expected}"
            yield node.wrong("data", finding, f"copy the driver's {folder} there")
        else:
            yield node.good("data", f"{name}: fingerprint {facts.data[name]}")
    if not driver.data:
        yield _folder(driver, node, facts, folder)


def _folder(driver: Facts, node: Node, facts: Facts, folder: str) -> CheckResult:
    if facts.files == driver.files:
        held = "is not there" if facts.files is None else f"holds {len(facts.files)} files or folders"
        return node.good("data", f"{folder} {held}; name a STUDY to have its data read")
    differing = sorted({*(facts.files or ())} ^ {*(driver.files or ())})
    finding = f"{folder} is not the driver's: {', '.join(differing[:5]) or 'not there'}"
    return node.wrong("data", finding, "share the folder, or copy it to every machine")


def check_gpus(node: Node, facts: Facts, device: str, *, shared: bool = False) -> Iterator[CheckResult]:
    """Check that the GPUs that Ray counts can be used, and that no other process fills their memory.

    Args:
        node: The machine.
        facts: Its answers.
        device: The device on which the trials are to run.
        shared: Whether several trials are to run on a GPU.
    """
    if why := facts.problems.get("gpus"):
        remedy = "repair the driver there, or start Ray there with --num-gpus 0"
        yield node.wrong("gpus", _promised(node) + why, remedy)
    elif node.gpus > len(facts.gpus):
        finding = f"{_promised(node)}torch finds {len(facts.gpus)}"
        yield node.wrong("gpus", finding, f"start Ray there with --num-gpus {len(facts.gpus)}")
    elif facts.gpus:
        yield from _each_gpu(node, facts)
        yield _mps(node, facts, shared)
    elif device == "cpu":
        yield node.good("gpus", "none")


def _promised(node: Node) -> str:
    return f"Ray counts {node.gpus:g} here, and " if node.gpus else ""


def _each_gpu(node: Node, facts: Facts) -> Iterator[CheckResult]:
    kinds = {gpu.name for gpu in facts.gpus}
    for gpu in facts.gpus:
        driver = f", driver {gpu.driver}" if gpu.driver else ""
        finding = f"{gpu.name}, {gpu.free / _GIB:.0f} of {gpu.memory / _GIB:.0f} GiB free{driver}"
        busy = gpu.free < (1 - _BUSY) * gpu.memory
        remedy = "free it of other processes, or give trials less of it (the study's gpus)" if busy else ""
        yield CheckResult("gpus", "warning" if busy else "good", finding, remedy, [node.name])
    if len(kinds) > 1:
        remedy = "start Ray there with CUDA_VISIBLE_DEVICES of one kind, or run with --mixed"
        yield node.wrong("gpus", f"of several kinds: {', '.join(sorted(kinds))}", remedy)


def _mps(node: Node, facts: Facts, shared: bool) -> CheckResult:
    if why := facts.problems.get("mps"):
        return node.warning("gpus", f"MPS cannot be asked: {why}", "see its logs there")
    if facts.mps:
        return node.good("gpus", "MPS runs: trials on one GPU compute side by side")
    state: State = "warning" if shared else "good"
    remedy = "nvidia-cuda-mps-control -d before Ray starts there: docs/cluster.md" if shared else ""
    return CheckResult("gpus", state, "MPS does not run: trials on one GPU take turns", remedy, [node.name])


def check_any_gpu(nodes: Iterable[tuple[Node, Facts]], device: str) -> Iterator[CheckResult]:
    """Check that a study for GPUs has at least one."""
    if device == "cuda" and not any(facts.gpus for _, facts in nodes):
        remedy = "machines with GPUs; or try it on the CPU with --smoke"
        yield CheckResult("gpus", "wrong", "the study needs a GPU and no machine has one", remedy, ["all"])


def check_disk(node: Node, facts: Facts) -> Iterator[CheckResult]:
    """Check the free disk space: for Ray's files, for lists made from datasets, and for the store."""
    for folder, free in facts.free.items():
        if free < _LITTLE:
            state: State = "wrong" if free < _TOO_LITTLE else "warning"
            remedy = f"free some of the disk of {folder}, or use another one"
            yield CheckResult("disk", state, f"{free / _GIB:.1f} GiB free for {folder}", remedy, [node.name])
    if all(free >= _LITTLE for free in facts.free.values()):
        finding = ", ".join(f"{folder} {free / _GIB:.0f} GiB" for folder, free in facts.free.items())
        yield node.good("disk", f"free for {finding}")


def check_token(node: Node, facts: Facts) -> Iterator[CheckResult]:
    """Check that nobody else on the machine can read the token with which Ray's processes authenticate."""
    if facts.open_token:
        finding = f"others can read {facts.open_token}, and so run code on the cluster"
        yield node.warning("token", finding, f"there: chmod 600 {facts.open_token}")


def check_clock(node: Node) -> Iterator[CheckResult]:
    """Check that the clock agrees with the driver's within a few seconds."""
    if node.behind is None:
        yield node.warning(
            "clock", "the node was too busy to be asked for its time", "ask again when it is less busy"
        )
        return
    if abs(node.behind) <= _SECONDS_OFF:
        yield node.good("clock", "within 2 s of the driver's")
        return
    state: State = "wrong" if abs(node.behind) > _SECONDS_REFUSED else "warning"
    finding = f"{abs(node.behind):.0f} s {'behind' if node.behind > 0 else 'ahead of'} the driver's"
    yield CheckResult(
        "clock", state, finding, "let a time service set it there (chrony, systemd-timesyncd)", [node.name]
    )
