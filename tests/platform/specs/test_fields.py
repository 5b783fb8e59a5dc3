"""Arguments of the functions that Python offers: a wrong one is named, with the rule and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import topk_platform
from topk_platform import LabelNoise, Regime, Study, UserError, load_model, plan, replay, run, table
from topk_platform.specs.fields import check_call
from topk_studies import digits

OF_STUDIES = ("run", "plan", "table", "report", "decide")
STUDY = digits()
Anything = Callable[..., Any]


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_study_is_no_name_and_no_function(name: str) -> None:
    function = getattr(topk_platform, name)
    with pytest.raises(
        UserError, match="study must be a Study, got 'emoji': import it, such as `from topk_studies"
    ):
        function("emoji")
    with pytest.raises(
        UserError, match=r"study must be a Study, got <function digits at .*>: call it, digits\(\)"
    ):
        function(digits)
    with pytest.raises(UserError, match="store must be a string or a path, got 3"):
        function(STUDY, store=3)


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        (run, {"workers": "2"}, "workers must be a whole number at least 1 or None, got '2'"),
        (run, {"only": 3}, "only must be a string or a sequence, each a string or None, got 3"),
        (run, {"only": ["*", 3]}, r"only\[1\] must be a string, got 3"),
        (run, {"max_hours": "1"}, "max_hours must be a finite number above 0 or None, got '1'"),
        (run, {"progress": 3}, "progress must be a function or True or False, got 3"),
        (run, {"download": "no"}, "download must be True or False, got 'no'"),
        (plan, {"workers": 1.5}, "workers must be a whole number at least 1 or None, got 1.5"),
        (load_model, {}, "folder must be a string or a path, got .*"),
        (replay, {}, "key must be a string, got .*"),
        (table, {"only": True}, "only must be a string or a sequence, each a string or None, got True"),
    ],
)
def test_other_arguments_are_named_with_their_rule(
    function: Anything, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=f"^{why}$"):
        function(STUDY, **arguments)


def test_all_that_the_package_offers_is_listed_before_it_is_imported() -> None:
    assert set(topk_platform.__all__) <= set(dir(topk_platform))


def test_a_result_that_only_type_checkers_import_is_no_hindrance() -> None:
    def function(count: int) -> NotImported:  # type: ignore[name-defined]  # noqa: F821
        check_call(function, locals())

    with pytest.raises(NameError):
        get_type_hints(function)
    function(2)
    with pytest.raises(UserError, match="count must be a whole number, got 'two'"):
        function("two")


def test_a_single_item_in_place_of_a_sequence_is_told_its_comma() -> None:
    item = LabelNoise(0.5)
    with pytest.raises(
        UserError, match=r"got LabelNoise.*: a sequence of one has a comma, \(LabelNoise\(.*\),\)$"
    ):
        Regime("r", "digits", conditions=(item))
    with pytest.raises(UserError, match=r"got 3: a sequence of one has a comma, \(3,\)$"):
        Study("s", STUDY.arms, topk=3)
    with pytest.raises(UserError, match=r"got 0$"):  # no item either
        Study("s", STUDY.arms, topk=0)
