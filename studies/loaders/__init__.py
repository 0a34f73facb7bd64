"""How fast loaders draw random samples of a Zarr array, as training does."""

from helpers.parameters import Study

STUDY = Study(name="loaders", headline="chunks-gain", by_name=("in-region", "fat-chunks"))
