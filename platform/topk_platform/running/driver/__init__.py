"""Training of a study's missing trials, from the study's definition to its table."""
