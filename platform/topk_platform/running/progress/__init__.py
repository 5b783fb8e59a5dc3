"""How a running study is doing, for those who watch it."""
