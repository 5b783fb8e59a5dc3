"""A driver's notes for people: a study's progress, and what a run left undone."""
