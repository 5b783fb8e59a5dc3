"""Operations on rows of scores that several families share."""
