"""Records as figures and tables, in one look."""
