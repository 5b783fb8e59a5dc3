"""A driver's notes in the study's folder: its plan, its progress, its data, and what a run left undone."""
