"""The noised top-K operator and hinge of Garcin et al. 2022."""
