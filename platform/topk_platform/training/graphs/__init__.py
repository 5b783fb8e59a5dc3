"""Training steps on a GPU that are recorded once and replayed for each batch."""
