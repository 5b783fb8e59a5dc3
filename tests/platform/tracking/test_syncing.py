"""What `topk sync` hands over, and what stays noted as undone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from topk_platform import Study
from topk_platform.errors import UserError
from topk_platform.records import DamagedError, Ledger, Store, Undone
from topk_platform.specs import TrialRecord
from topk_platform.tracking import StudyResult, TrackedStudy, TrackedTrial, Tracker, sync

BEHIND = "MLflow is behind: no answer; tried twice; TensorBoard is behind: disk full"


class Files(Tracker):
    """A tracker of some name that keeps the tables."""

    def __init__(self, title: str = "TensorBoard") -> None:
        self.title = title
        self.files: dict[str, str] = {}

    def begin(self, study: TrackedStudy) -> Collection[str]:
        return ()

    def remove(self, keys: Collection[str]) -> None:
        pass

    def trial_ended(self, trial: TrackedTrial) -> None:
        pass

    def study_ended(self, result: StudyResult) -> None:
        self.files.update(result.files)


@pytest.fixture
def store(tmp_path: Path, study: Study, record: Callable[..., TrialRecord]) -> Store:
    ledger = Ledger.open(Store.open(tmp_path), "s")
    with ledger.writing(study) as writer:
        writer.put(record(study, 0))
    ledger.store.write("tables/table.md", b"# s")
    return ledger.store


def test_a_picture_that_somebody_keeps_beside_the_tables_is_left_out(tmp_path: Path, store: Store) -> None:
    store.write("tables/plot.png", b"\x89PNG\xff")
    tracker = Files()
    assert sync("s", store=tmp_path, track=tracker) == ["TensorBoard"]
    assert tracker.files == {"table.md": "# s"}


@pytest.mark.parametrize("content", [b'{"a": ', b'{"a": {"name": "a"}}', b"[]", b"\xff"])
def test_damaged_results_of_arms_are_one_line_with_the_remedy(
    content: bytes, tmp_path: Path, store: Store
) -> None:
    store.write("tables/arms.json", content)
    remedy = r"tables/arms\.json is damaged; `topk run s --store .*` makes it again"
    with pytest.raises(DamagedError, match=remedy):
        sync("s", store=tmp_path, track=Files())


@pytest.mark.parametrize(
    ("titles", "left"),
    [(["TensorBoard"], BEHIND), (["MLflow", "TensorBoard"], "")],
)
def test_a_tracker_that_was_not_filled_stays_noted_as_behind(
    titles: list[str], left: str, tmp_path: Path, store: Store
) -> None:
    Undone(tracking=BEHIND).note(store)
    sync("s", store=tmp_path, track=[Files(title) for title in titles])
    assert Undone.read(store).tracking == left


def test_a_sync_that_would_fill_no_tracker_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(UserError, match="track must name a tracker to fill, got none"):
        sync("s", store=tmp_path, track="none")
