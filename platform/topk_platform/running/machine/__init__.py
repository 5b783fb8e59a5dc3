"""One machine's cores, memory and GPUs."""
