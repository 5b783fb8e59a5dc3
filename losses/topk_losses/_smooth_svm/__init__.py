"""The smooth top-K SVM of Berrada et al. 2018."""
