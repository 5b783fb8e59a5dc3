"""What an arm is: a regime, a model, a loss with its search space, and the recipe by which its trials train."""
