"""The commands, in a module for each thing that they are about."""
