"""Requests that clients make for one access, version by version: environments, counts, and jumps between releases."""
