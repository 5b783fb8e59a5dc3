"""The expectation of the noised top-K operator."""
