"""How large a true difference a table's tests would have seen."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from topk_platform.reports.detectable import chance_to_see

SIZES = st.lists(st.sampled_from([0.01, 0.02, 0.04, 0.3, 1.0, 1.01, 3.0]), min_size=1, max_size=9)


@given(SIZES)
def test_every_size_that_is_named_is_possible_and_seen_where_the_words_say(sizes: list[float]) -> None:
    said = chance_to_see("top3", sizes, "is seen", "them", each=" in each")
    named = [float(points) / 100 for points in re.findall(r"([\d.]+) points", said)]
    assert all(size <= 1 for size in named)
    seen = [sum(other <= size for other in sizes) for size in [*named, 1.0]]
    if "in more than half of them" in said and said.startswith("A true"):
        assert seen[0] > len(sizes) / 2 and (seen[1] == len(sizes)) == ("but none" not in said)
    elif said.startswith("A true"):
        assert seen[0] == len(sizes)
    else:
        assert seen[0] <= len(sizes) / 2 and (" any " in said) <= (seen[0] == 0)


def test_none_is_seen_in_any_of_several_cells() -> None:
    said = chance_to_see("top3", [1.2, 1.4], "is seen", "the 2 cells", each=" in each of the 2 cells")
    assert said == "No true difference, however large, is seen in any of the 2 cells"
