"""Image files: lists of them, and their pixels, decoded when they are needed."""
