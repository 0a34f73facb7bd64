"""What happened: knows clocks, never arrays."""
