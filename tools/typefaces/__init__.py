"""Characters as typefaces draw them: what ``tools/make_letters.py`` is made of."""
