"""From parameter files to executed notebooks, and from these to the book."""
