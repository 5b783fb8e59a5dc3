"""How samples are split into training, validation and test, single or in whole groups."""
