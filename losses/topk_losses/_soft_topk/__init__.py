"""Soft top-K by a threshold: each class's probability of exceeding the level at which the probabilities sum to K."""
