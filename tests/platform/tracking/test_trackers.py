"""Which trackers a run gets, and which options contradict one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from topk_platform.errors import UserError
from topk_platform.records import Store
from topk_platform.tracking import Tracking


@pytest.mark.parametrize(
    ("track", "uri", "message"),
    [
        (("mlflow", "mlflow"), None, "track must name each tracker once, got 'mlflow' twice"),
        (
            ("mlflow", "mlflow=http://me:s3cr3t@host:1"),
            "http://me:s3cr3t@host:1",
            "track must name each tracker once, got 'mlflow=http://me:***@host:1' twice",
        ),
        (("none", "mlflow"), None, "track must be none alone, "),
        ("none", "http://host:1", "mlflow is given but no --track is mlflow without a location: "),
        ("mlflow=http://host:1", "http://host:2", "mlflow is given but no --track is mlflow without a "),
    ],
)
def test_trackers_that_contradict_one_another_are_refused(
    track: str | tuple[str, ...], uri: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        Tracking.of(Store.open(tmp_path), track, mlflow_uri=uri)
    assert str(caught.value).startswith(message)


def test_mlflows_address_is_known_whichever_option_names_it(tmp_path: Path) -> None:
    """Otherwise a run with the same address says that it writes elsewhere than the last one."""
    store, uri = Store.open(tmp_path), "http://host:1"
    assert Tracking.of(store, mlflow_uri=uri).mlflow_uri == uri
    assert Tracking.of(store, ("tensorboard", f"mlflow={uri}")).mlflow_uri == uri
    assert Tracking.of(store, "mlflow").mlflow_uri is None
