"""The parts of an arm: a regime, a model, a loss with its search space, and the recipe by which its trials train."""
