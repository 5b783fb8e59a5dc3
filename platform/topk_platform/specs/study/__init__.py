"""A study of several arms, with the claims and published numbers that it carries, and its smoke version."""
