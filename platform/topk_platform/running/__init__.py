"""Studies on Ray.

Its modules are imported one by one, for Ray and torch take seconds: ``study`` runs a study, ``planning`` says what is
left of it, ``probing`` finds the largest batches, ``replaying`` runs a recorded trial again.
"""
