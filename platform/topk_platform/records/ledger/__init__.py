"""A study's ledger: what is written into its table, and what is read from it."""
