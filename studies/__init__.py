"""One folder a notebook; each registers itself."""
