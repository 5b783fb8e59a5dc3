"""Prediction sets with a guaranteed coverage: the calibration of a network, and the sets that it gives."""
