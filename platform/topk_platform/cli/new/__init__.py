"""``topk new``: a study file for somebody's own data, from templates."""
