"""The smooth convex top-K hinge of Lapin et al. 2016."""
