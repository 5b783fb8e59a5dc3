"""What is left of a study, how long that takes, and what fits into memory."""
