"""Which code that runs on import may do more than bind names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TABLE = """
class Table:
    def __init__(self):
        self.items = {}
    def named(self, name):
        def enter(function):
            self.items[name] = function
            return function
        return enter
    @classmethod
    def shared(cls, function):
        cls.kept[0] = function
        return function
    kept = {}
"""
HELPERS = """
def append(function):
    LISTED.append(function)
    return function
def filter(function):
    LISTED.append(function)
    return function
def into(table):
    def enter(function):
        table[function.__name__] = function
        return function
    return enter
def first(listed):
    listed.append(KERNEL)
def enter(function):
    TABLE.named("kernel")(function)
    return function
"""
KERNEL = "def kernel(): return 1\n"


@pytest.mark.parametrize(
    "main",
    [
        f"@append\n{KERNEL}def loss(): return LISTED[0]()\n",
        f"@into(NAMED)\n{KERNEL}def loss(): return NAMED['kernel']()\n",
        f"@TABLE.named('kernel')\n{KERNEL}def loss(): return TABLE.items['kernel']()\n",
        f"@Table.shared\n{KERNEL}def loss(): return Table.kept[0]()\n",
        f"@enter\n{KERNEL}def loss(): return TABLE.items['kernel']()\n",
        f"{KERNEL}_ = NAMED.setdefault('kernel', kernel)\ndef loss(): return NAMED['kernel']()\n",
        f"{KERNEL}_ = list.append(LISTED, kernel)\ndef loss(): return LISTED[0]()\n",
        f"@filter\n{KERNEL}def loss(): return LISTED[0]()\n",
        f"{KERNEL}KERNEL = kernel\n_ = first(LISTED)\ndef loss(): return LISTED[0]()\n",
        "@dispatched.register\ndef _(x: int): return 1\ndef loss(): return dispatched(3)\n",
    ],
)
def test_what_enters_itself_into_a_table_counts(starts_anew: Callable[..., bool], main: str) -> None:
    values = "LISTED, NAMED, TABLE = [], {}, Table()\n"
    dispatched = "from functools import singledispatch\n@singledispatch\ndef dispatched(x): return 0\n"
    assert starts_anew({"main": TABLE + HELPERS + values + dispatched + main}, "return 1", "return 3")


def test_what_changes_nothing_else_does_not_count(starts_anew: Callable[..., bool]) -> None:
    calm = (
        "class Rule:\n    def __init__(self, rate): self.rate = rate\n"
        "def doubled(values): return [2 * value for value in values]\n"
        "def listed(values):\n    own, total = list(values), 0\n    more = []\n    more += own\n"
        "    more.append(9)\n    return more\nLISTED = listed([9])\n"
        "RULE, SIZES = Rule(9), doubled([9])\nWORDS = 'a 9'.split()\nMORE = WORDS.copy()\n"
    )
    assert not starts_anew({"main": f"{calm}def loss(): return 1\n"}, "9", "8")


SEEDED = "random.seed(0)\nDRAWN = random.random()\n"


@pytest.mark.parametrize(
    ("statements", "edited"),
    [
        ("LISTED.append(1)\n", "LISTED.append(1)\nLISTED.append(1)\n"),
        ("LISTED.append(1)\nLISTED.append(2)\n", "LISTED.append(2)\nLISTED.append(1)\n"),
        (SEEDED, "DRAWN = random.random()\nrandom.seed(0)\n"),
    ],
)
def test_the_order_of_statements_that_act_counts_and_how_often_each_runs(
    starts_anew: Callable[..., bool], statements: str, edited: str
) -> None:
    main = f"import random\nLISTED = []\n{statements}def loss(): return sum(LISTED), DRAWN\n"
    assert starts_anew({"main": main}, statements, edited)


@pytest.mark.parametrize(
    "statement",
    [
        "LISTED += [kernel]\n",
        "def enter(table):\n    table += [kernel]\n_ = enter(LISTED)\n",
        "def enter():\n    table = LISTED\n    table.append(kernel)\n_ = enter()\n",
        "def enter():\n    for table in [LISTED]:\n        table.append(kernel)\n_ = enter()\n",
    ],
)
def test_what_enters_itself_into_the_table_of_another_module_counts(
    starts_anew: Callable[..., bool], statement: str
) -> None:
    sources = {
        "main": "import edited_lab.plugin\nfrom edited_lab.table import first\ndef loss(): return first()\n",
        "table": "LISTED = []\ndef first(): return LISTED[0]()\n",
        "plugin": f"from edited_lab.table import LISTED\n{KERNEL}{statement}",
    }
    assert starts_anew(sources, "return 1", "return 3")


@pytest.mark.parametrize("listed", ["Kernel.__subclasses__()[0]().run()", "9"])
def test_a_subclass_counts_where_subclasses_are_listed(starts_anew: Callable[..., bool], listed: str) -> None:
    sources = {
        "main": f"import edited_lab.plugin\nfrom edited_lab.base import Kernel\ndef loss(): return {listed}\n",
        "base": "class Kernel:\n    pass\n",
        "plugin": "from edited_lab.base import Kernel\nclass Fast(Kernel):\n    def run(self): return 1\n",
    }
    assert starts_anew(sources, "return 1", "return 3") == ("subclasses" in listed)
