"""A study's table in Delta Lake: its columns, its checksums, reading it and writing it."""
