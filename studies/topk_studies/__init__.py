"""Study definitions."""
