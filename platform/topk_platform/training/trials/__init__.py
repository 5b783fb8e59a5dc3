"""The trials that train together: their progress, their times, and the weights and files that are kept."""
