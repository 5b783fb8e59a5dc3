"""What docs/search.md shows can be typed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import topk_platform
from topk_platform.specs import Protocol, Sampler
from topk_platform.testing import SamplerContract

PAGE = (Path(__file__).parents[3] / "docs" / "search.md").read_text()


def test_the_pages_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {name: getattr(topk_platform, name) for name in topk_platform.__all__}
    for block in blocks:
        exec(block, {**names, "SamplerContract": SamplerContract})  # noqa: S102 - our own page


def test_the_page_names_every_sampler_and_its_packages() -> None:
    assert Protocol().sampler == topk_platform.TPE(random=5)
    for sampler in Sampler.__args__:  # type: ignore[attr-defined]
        (row,) = re.findall(rf"^\| `{sampler.__name__}\(.*$", PAGE, flags=re.MULTILINE)
        fields = [field.name for field in dataclasses.fields(sampler)]
        assert re.findall(r"\((.*?)\)", row)[0] == ", ".join(fields)
        assert ("topk-studies[" in row) == bool({"cmaes", "greenlet"} & set(sampler.packages))
