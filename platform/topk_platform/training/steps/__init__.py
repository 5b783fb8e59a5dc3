"""What a gradient step and an epoch consist of: batches, augmentation, optimisers and compiled networks."""
