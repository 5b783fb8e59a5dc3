"""That a definition's hash is a function of what it means: the same for the same program, another for another one."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_platform.sources.canonical import digest_of
from topk_platform.sources.finding import Source
from topk_platform.sources.module import analysed

PROGRAM = '''
"""A module."""
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
import math

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 1_000

@dataclass(frozen=True)
class Rule:
    """A rule."""
    k: int
    names: ClassVar[tuple] = ()
    tau: float = 1.0
    """Its temperature."""

    def at(self, epoch: int, *, warm=False) -> "Tensor":
        """Return it."""
        if epoch > LIMIT:
            raise ValueError(f"epoch must be at most {LIMIT!r:>4}, got {epoch}")
        found: list[int]
        total: float = 0.0
        for step in range(epoch): total += math.exp(-step / self.tau)
        match epoch:
            case 0 | 1: pass
            case [*_]: return None
        try:
            return [x := step ** 2 for step in range(3) if not warm]
        except (ValueError, KeyError) as error:
            return {**{1: 2}, 'a': lambda y, /, z=3: y @ z}, b'\\x00', 1j, ..., -0.5
'''


def digest(text: str) -> str:
    return digest_of(ast.parse(text).body)


GOLDEN = "d7a90c14711989dc"


def test_the_hash_is_the_same_on_every_version_of_python() -> None:
    assert digest(PROGRAM) == GOLDEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A rule."""', '"""Another text."""'),
        ('"""Its temperature."""', ""),
        ("1_000", "1000"),
        (' -> "Tensor"', ""),
        ("total: float = 0.0", "total = 0.0"),
        ("found: list[int]", "pass"),
        ("'a'", '"a"'),
        ("k: int", "k: 'whole'"),
        ("    from torch import Tensor", "    from numpy import ndarray"),
        ("(ValueError, KeyError) as error:", "(\n ValueError,\n KeyError,\n) as error:  # a comment"),
        ('{LIMIT!r:>4}, got {epoch}"', '{LIMIT!r:>4}, " f"got {epoch}"'),
    ],
)
def test_what_means_the_same_has_the_same_hash(old: str, new: str) -> None:
    assert old in PROGRAM
    assert digest(PROGRAM.replace(old, new)) == digest(PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1_000", "1000.0"),
        ("1_000", "True"),
        ("tau: float = 1.0", "tau: float = 2.0"),
        ("    tau: float = 1.0\n", "    heat: float = 1.0\n"),
        ("    k: int\n", ""),
        ("k: int", "k: ClassVar[int]"),
        ("frozen=True", "frozen=False"),
        ("warm=False", "warm=None"),
        ("*, warm", "warm"),
        ("epoch > LIMIT", "epoch >= LIMIT"),
        ("y, /, z=3", "y, z=3"),
        ("case 0 | 1", "case 1 | 0"),
        ("!r:>4", ":>4"),
        ("b'\\x00'", "'\\x00'"),
        ("-0.5", "0.5"),
        ("if not warm", "if warm"),
        ("(ValueError, KeyError)", "ValueError"),
        ("total += math.exp(-step", "total -= math.exp(-step"),
    ],
)
def test_what_means_something_else_has_another_hash(old: str, new: str) -> None:
    assert old in PROGRAM
    assert digest(PROGRAM.replace(old, new)) != digest(PROGRAM)


leaves = st.sampled_from(["a", "b", "0", "1", "1.0", "'a'", "b'a'", "None", "True", "...", "f'{a}'", "1j"])
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "@", "<", "is", "and", "or"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.lists(inner, max_size=3).map(lambda items: f"f({', '.join(items)})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.tuples(inner, inner).map(lambda t: f"{{{t[0]}: {t[1]}}}"),
        inner.map(lambda item: f"(lambda x: {item})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]} if {t[1]} else a)"),
    ),
    max_leaves=8,
)


@given(expressions, expressions)
def test_two_expressions_have_one_hash_exactly_if_python_reads_them_as_one(one: str, other: str) -> None:
    same = ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    assert (digest(f"x = {one}") == digest(f"x = {other}")) == same
    assert digest(f"x = {one}") == digest(f"x: int = (\n {ast.unparse(ast.parse(one))}\n)  # ")


RAISING = """
def check(value, least):
    assert value is not None, 'no value'
    if value < least:
        raise Refused(f'value must be at least {least}, got {value!r}' + hint(value), value)
    checks.check(name + '.csv', 'kept')
    check(value < 9, f'value must be below 9, got {value}' + more(value))
    warnings.warn(f'value {value} is small', Small, stacklevel=2)
"""


def version(text: str, module: str) -> str:
    return analysed(Source(module, Path("m.py")), text.encode()).definitions["check"].digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'no value'", "f'none of {least}'"),
        ("must be at least", "may not be below"),
        (" + hint(value)", ""),
        ("{value!r}", "{value}"),
        ("must be below", "may not reach"),
        (" + more(value)", ""),
        ("is small", "is little"),
    ],
)
def test_messages_of_our_errors_and_warnings_do_not_count_and_those_of_others_do(old: str, new: str) -> None:
    edited = RAISING.replace(old, new)
    assert edited != RAISING
    assert version(edited, "topk_losses.m") == version(RAISING, "topk_losses.m")
    assert version(edited, "lab.m") != version(RAISING, "lab.m")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value < least", "value <= least"),
        ("Refused(", "ValueError("),
        (", value)", ", least)"),
        ("is not None", "is None"),
        ("{value!r}", "{(least := value)}"),
        ("value < 9", "value <= 9"),
        ("{value}'", "{(least := value)}'"),
        ("'kept'", "'given'"),
        (".csv", ".txt"),
        ("Small", "UserWarning"),
        ("stacklevel=2", "stacklevel=1"),
    ],
)
def test_what_else_an_error_or_a_warning_does_counts(old: str, new: str) -> None:
    edited = RAISING.replace(old, new)
    assert edited != RAISING
    assert version(edited, "topk_losses.m") != version(RAISING, "topk_losses.m")


def test_annotations_and_docstrings_count_where_the_program_reads_them() -> None:
    def digests(text: str) -> dict[str, str]:
        module = analysed(Source("m", Path("m.py")), textwrap.dedent(text).encode())
        return {name: result.digest for name, result in module.definitions.items()}

    reader = "from typing import get_type_hints\ndef f(x: {}): return get_type_hints(f)\n"
    assert digests(reader.format("int")) != digests(reader.format("str"))
    shown = "def f():\n    '{}'\n    return f.__doc__\n"
    assert digests(shown.format("a")) != digests(shown.format("b"))
    kernel = "import triton\nimport triton.language as tl\n@triton.jit\ndef f(n: {}): return n\n"
    assert digests(kernel.format("tl.constexpr")) != digests(kernel.format("int"))
