"""Which names of a module a piece of its code uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FAST_OR_SLOW = "if FAST:\n    from edited_lab.fast import f\nelse:\n    from edited_lab.slow import f\n"
SWITCH = "        from .fast import f\n    else:\n        from .slow import f\n"
LATE = f"def loss():\n    if FAST:\n{SWITCH}    return f()\n"
SOURCES = {
    "fast": "def f(): return 1\n",
    "slow": "def f(): return 2\n",
    "branches": f"FAST = True\n{FAST_OR_SLOW}def loss(): return f()\n",
    "matches": "match 7:\n    case 7: from .fast import f\n    case _: from .slow import f\ndef loss(): return f()\n",
    "late": f"FAST = True\n{LATE}",
    "none": "def loss():\n    f = None\n    if 7:\n        from .fast import f\n    return f()\n",
    "shared": "def load():\n    global f\n    from .fast import f\ndef loss():\n    load()\n    return f()\n",
    "inside": "class Holder:\n    from .fast import f\ndef loss(): return Holder.f()\n",
    "by_name": "import importlib\ndef loss(): return importlib.import_module(name='edited_lab.fast').f()\n",
    "relative": "import importlib\ndef loss(): return importlib.import_module('.fast', __package__).f()\n",
    "built_in": "def loss(): return __import__('edited_lab.fast').fast.f()\n",
    "listed": "f = [1, 9]\ndef loss(): return sum([f for f in f])\n",
}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("branches", "FAST = True", "FAST = False"),
        ("branches", "return 2", "return 3"),
        ("branches", FAST_OR_SLOW, FAST_OR_SLOW.replace("if FAST", "if not FAST")),
        ("matches", "case 7", "case 8"),
        ("matches", "return 1", "return 3"),
        ("late", "FAST = True", "FAST = False"),
        ("late", "return 1", "return 3"),
        ("late", "return 2", "return 3"),
        (
            "late",
            "from .fast import f\n    else:\n        from .slow",
            "from .slow import f\n    else:\n        from .fast",
        ),
        *(
            (name, "return 1", "return 3")
            for name in ("none", "shared", "inside", "by_name", "relative", "built_in")
        ),
        ("listed", "[1, 9]", "[1, 8]"),
    ],
)
def test_what_is_imported_counts_however_it_is_imported(
    starts_anew: Callable[..., bool], module: str, old: str, new: str
) -> None:
    files = {name: SOURCES[name] for name in ("fast", "slow")}
    assert starts_anew({**files, "main": SOURCES[module]}, old, new)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("import sys", "sys.modules"),
        ("import sys as s", "s.modules"),
        ("from sys import modules", "modules"),
        ("from sys import modules as known", "known"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_module_that_looks_itself_up_among_all_modules_counts_as_a_whole(
    starts_anew: Callable[..., bool], statement: str, name: str, late: bool
) -> None:
    top, inside = ("", f"    {statement}\n") if late else (f"{statement}\n", "")
    main = f"{top}def kernel(): return 1\ndef loss():\n{inside}    return vars({name}[__name__])['ker' + 'nel']()\n"
    assert starts_anew({"main": main}, "return 1", "return 3")


def test_a_module_that_no_branch_imports_does_not_count(starts_anew: Callable[..., bool]) -> None:
    main = SOURCES["late"].replace(".slow", ".fast")
    assert not starts_anew(
        {"fast": SOURCES["fast"], "slow": SOURCES["slow"], "main": main}, "return 2", "return 3"
    )


@pytest.mark.parametrize(
    ("main", "old", "new"),
    [
        ("from math import *\ndef loss(): return sqrt(4)\n", "math", "cmath"),
        ("from edited_lab import whole\ndef loss(): return getattr(whole, 'f')()\n", "return 1", "return 3"),
    ],
)
def test_what_is_imported_with_a_star_counts(
    starts_anew: Callable[..., bool], main: str, old: str, new: str
) -> None:
    files = {"fast": SOURCES["fast"], "whole": "from edited_lab.fast import *\n"}
    assert starts_anew({**files, "main": main}, old, new)


@pytest.mark.parametrize("own", ["def f(): return 0\n", "from edited_lab.slow import f\n"])
def test_a_star_may_replace_a_name_of_the_module(starts_anew: Callable[..., bool], own: str) -> None:
    main = f"{own}try:\n    from .fast import *\nexcept ImportError:\n    pass\ndef loss(): return f()\n"
    files = {name: SOURCES[name] for name in ("fast", "slow")}
    assert starts_anew({**files, "main": main}, "return 1", "return 3")


def test_modules_may_import_one_another_with_a_star(starts_anew: Callable[..., bool]) -> None:
    files = {
        "main": "from edited_lab.one import *\ndef loss(): return abs(f())\n",
        "one": "from edited_lab.two import *\n",
        "two": "from edited_lab.one import *\ndef f(): return 1\n",
    }
    assert starts_anew(files, "return 1", "return 3")


@pytest.mark.parametrize(
    "main",
    [
        "from functools import singledispatchmethod\nclass A:\n    @singledispatchmethod\n"
        "    def f(self, x): return 0\n    @f.register\n    def _(self, x: int): return 1\n"
        "def loss(): return A().f(3)\n",
        "from edited_lab.base import f\n@f.register\ndef _(x: int): return 1\ndef loss(): return f(3)\n",
    ],
)
def test_the_annotations_that_choose_a_function_count(starts_anew: Callable[..., bool], main: str) -> None:
    base = "from functools import singledispatch\n@singledispatch\ndef f(x): return 0\n"
    assert starts_anew({"base": base, "main": main}, "x: int", "x: str")
