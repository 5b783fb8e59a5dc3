"""The trials that train together: their progress, their times and what is kept of them."""
