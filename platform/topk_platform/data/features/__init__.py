"""Features that a frozen network computes from images, once."""
