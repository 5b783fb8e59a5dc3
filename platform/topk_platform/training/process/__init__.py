"""The process that trains: its state, its environment, and the faults that are not a trial's own."""
