"""``topk run``: the command, what it shows while the study runs, and how it ends."""
