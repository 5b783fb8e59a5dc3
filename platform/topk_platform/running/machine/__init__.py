"""What one machine offers: its cores, its memory and its GPUs."""
