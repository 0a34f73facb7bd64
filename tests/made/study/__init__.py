"""A study with the parameters that every study has."""

from helpers.book.studies import Study

STUDY = Study(name="study", headline="headline")
