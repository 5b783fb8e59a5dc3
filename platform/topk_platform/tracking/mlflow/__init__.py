"""The tracker MLflow: an experiment per study, a run per arm with its results, and the trials' runs below it."""
