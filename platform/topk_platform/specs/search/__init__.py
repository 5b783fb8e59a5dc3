"""How an arm is searched: the dimensions of its space, the sampler, the pruner, racing and repeated searches."""
