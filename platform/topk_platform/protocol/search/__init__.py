"""How values are chosen and trials stopped: Optuna's samplers, suggestions and pruning thresholds."""
