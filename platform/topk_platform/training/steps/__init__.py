"""The parts of a gradient step and an epoch: batches, augmentation and optimisers."""
