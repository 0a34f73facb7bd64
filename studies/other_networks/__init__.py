"""What the requests of a client take on a network on which nobody has seen them."""

from helpers.parameters import Study

STUDY = Study(
    name="other-networks", headline="replay-error", by_name=("three-networks",), least_blocks=4
)
