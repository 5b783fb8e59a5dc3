"""MLflow, where people look at trials and compare them. It is filled from the ledger and decides nothing."""
