"""The probability that a label is among the K best, by a sorting network with relaxed comparators."""
