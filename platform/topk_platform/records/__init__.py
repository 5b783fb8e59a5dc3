"""The ledger, what is read from it, and the tracking sink that is derived from it."""

from topk_platform.records.checkpoints import StoreKeeper, forget
from topk_platform.records.finding import Found, find
from topk_platform.records.history import ArmHistory, Tally, last_counted, read_history
from topk_platform.records.ledger import Ledger, Row
from topk_platform.records.models import model_name, save_model
from topk_platform.records.schema import (
    SCHEMA_VERSION,
    epochs_schema,
    epochs_table,
    trials_schema,
    trials_table,
)
from topk_platform.records.store import Store
from topk_platform.records.tracked import tracking_uri
from topk_platform.records.tracking import TrackingSink
from topk_platform.records.tracking_check import check_tracking

__all__ = [
    "SCHEMA_VERSION",
    "ArmHistory",
    "Found",
    "Ledger",
    "Row",
    "Store",
    "StoreKeeper",
    "Tally",
    "TrackingSink",
    "check_tracking",
    "epochs_schema",
    "epochs_table",
    "find",
    "forget",
    "last_counted",
    "model_name",
    "read_history",
    "save_model",
    "tracking_uri",
    "trials_schema",
    "trials_table",
]
