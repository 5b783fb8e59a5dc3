"""What several families do to rows of scores."""
