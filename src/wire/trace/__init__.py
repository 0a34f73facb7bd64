"""What a program of one's own asks of a store, and what it waits for."""
