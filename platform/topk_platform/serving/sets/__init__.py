"""Prediction sets with a guaranteed coverage: how a network is calibrated for them, and how they are formed."""
