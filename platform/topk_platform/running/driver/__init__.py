"""Training what is missing of a study, from its definition to its table."""
