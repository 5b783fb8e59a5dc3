"""The parts of an arm's search: the dimensions of its space, the sampler, the pruner, racing and repeated searches."""
