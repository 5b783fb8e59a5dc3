"""Parts that all losses share: checks, the layout as rows, reduction, gradients, and the choice of the backend."""
