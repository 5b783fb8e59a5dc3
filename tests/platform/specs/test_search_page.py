"""What docs/searching.md says of samplers is so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import topk_platform
from topk_platform.specs import Protocol, Sampler

PAGE = (Path(__file__).parents[3] / "docs" / "searching.md").read_text()


def test_the_page_names_every_sampler() -> None:
    assert Protocol().sampler == topk_platform.TPE(random=5)
    for sampler in Sampler.__args__:  # type: ignore[attr-defined]
        (row,) = re.findall(rf"^\| `{sampler.__name__}\(.*$", PAGE, flags=re.MULTILINE)
        fields = [field.name for field in dataclasses.fields(sampler)]
        assert re.findall(r"\((.*?)\)", row)[0] == ", ".join(fields)
