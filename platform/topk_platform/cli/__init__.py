"""The command ``topk``: run studies, look into them, print their tables."""

from topk_platform.cli.app import app, main

__all__ = ["app", "main"]
