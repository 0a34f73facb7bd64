"""How many requests it takes to open a tree of groups, or a dataset with many coordinates."""

from helpers.parameters import Study

STUDY = Study(
    name="opening-trees",
    headline="tree-gain",
    by_name=("in-region", "other-region"),
)
