"""Commands of the command line, one a module; each imports what it needs when it runs."""
