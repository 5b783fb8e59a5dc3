"""The parts of an arm's search: the dimensions of its space, the sampler, the pruner and repeated searches."""
