"""Losses for top-K classification: exact, stable, and usable with nothing but torch."""
