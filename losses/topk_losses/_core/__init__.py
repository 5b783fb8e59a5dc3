"""What every loss goes through: checks, the layout as rows, the reduction, gradients, and the gate to the backends."""
