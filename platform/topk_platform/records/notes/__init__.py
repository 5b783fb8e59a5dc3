"""What a driver notes of a study for people: its progress, and what a run left undone."""
