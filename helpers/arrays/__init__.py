"""Arrays in a store: chunk arithmetic, synthetic fields, writers, readers, clusters."""
