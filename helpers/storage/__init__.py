"""What bytes are and where they lie: knows arrays, never clocks."""
