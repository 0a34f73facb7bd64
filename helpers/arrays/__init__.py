"""Arrays in a store: synthetic fields, layouts and their readers, clusters."""
