"""A study with the parameters that every study has."""

from helpers.parameters import Study

STUDY = Study(name="study", headline="headline")
