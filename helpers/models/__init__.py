"""What should happen: pure arithmetic on numbers, no input or output."""
