"""The ledger, what is read from it, and the tracking sink that is derived from it."""

from topk_platform.records.checkpoints import StoreKeeper, forget
from topk_platform.records.finding import Found, find
from topk_platform.records.history import ArmHistory, Tally, last_counted, read_history
from topk_platform.records.ledger import Ledger, Row
from topk_platform.records.models import model_name, save_model
from topk_platform.records.ranks import Ranks, read_ranks
from topk_platform.records.repair import Repaired, repair
from topk_platform.records.schema import SCHEMA_VERSION
from topk_platform.records.snapshot import SNAPSHOT, write_snapshot
from topk_platform.records.store import Store
from topk_platform.records.syncing import open_sink, sync
from topk_platform.records.tracked import tracking_uri
from topk_platform.records.tracking import TrackingSink
from topk_platform.records.tracking_check import check_tracking
from topk_platform.records.writer import Writer

__all__ = [
    "SCHEMA_VERSION",
    "SNAPSHOT",
    "ArmHistory",
    "Found",
    "Ledger",
    "Ranks",
    "Repaired",
    "Row",
    "Store",
    "StoreKeeper",
    "Tally",
    "TrackingSink",
    "Writer",
    "check_tracking",
    "find",
    "forget",
    "last_counted",
    "model_name",
    "open_sink",
    "read_history",
    "read_ranks",
    "repair",
    "save_model",
    "sync",
    "tracking_uri",
    "write_snapshot",
]
