"""What the project holds itself to, as ratios measured in one run."""
