"""What is told of early and final validation before anybody trusts a rule of stopping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topk_platform import Arm, Float, Loss, Model, NoPruning, Protocol, Quantile, Recipe, Regime
from topk_platform.protocol import early_correlations
from topk_platform.protocol.ended import Ended

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


def an_arm(protocol: Protocol) -> Arm:
    return Arm(Regime("r", "digits"), Model("mlp"), LOSS, 3, Recipe(8), protocol=protocol)


def slow_spearman(pairs: list[tuple[float, float]]) -> float:
    """Pearson's correlation of ranks, equal values sharing the mean of theirs."""

    def ranks(values: list[float]) -> list[float]:
        return [
            sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values
        ]

    one, other = (ranks(list(side)) for side in zip(*pairs, strict=True))
    mean = (len(pairs) + 1) / 2
    both, *squares = (
        sum((a - mean) * (b - mean) for a, b in zip(*sides, strict=True))
        for sides in ((one, other), (one, one), (other, other))
    )
    return both / (squares[0] * squares[1]) ** 0.5


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9))
def test_the_correlation_is_that_of_ranks(values: list[tuple[int, int]]) -> None:
    ended = [Ended(n, {}, "completed", {2: a / 5, 8: b / 5}) for n, (a, b) in enumerate(values)]
    ended += [Ended(90, {}, "pruned", {2: 0.0}), Ended(91, {}, "failed")]
    result = early_correlations(an_arm(Protocol(pruner=Quantile(rungs=(0.25,)))), ended)
    assert list(result) == [2]
    count, correlation = result[2]
    assert count == len(values)
    if len(values) < 3 or any(len(set(side)) == 1 for side in zip(*values, strict=True)):
        assert correlation is None
    else:
        assert correlation is not None
        assert abs(correlation - slow_spearman([(float(a), float(b)) for a, b in values])) < 1e-9


def test_an_arm_without_a_rule_shows_what_the_default_would_see() -> None:
    ended = [Ended(n, {}, "completed", {2: n / 9, 4: -n / 9, 8: 0.1}, selected=n / 5) for n in range(4)]
    result = early_correlations(an_arm(Protocol(pruner=NoPruning())), ended)
    assert result == {2: (4, 1.0), 4: (4, -1.0)}
