"""What should happen: pure arithmetic on numbers, no input or output."""

WORTH = 1.1
"""Times as fast, below which a change is not worth it: growth has ended, a layout is as good."""
