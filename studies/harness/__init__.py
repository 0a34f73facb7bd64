"""Whether the machinery under all studies can be believed on a machine."""

from helpers.parameters import Study

STUDY = Study(name="harness", headline="time-through-proxy", by_name=("ladder",))
