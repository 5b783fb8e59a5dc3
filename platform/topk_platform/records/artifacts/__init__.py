"""The files beside the ledger: ranks, guesses, networks and checkpoints."""
