"""Top-K grouping and transition of Sawada et al. 2020."""
