"""Stage the pages of the book and build it strictly; nothing is measured here.

A page shows an executed notebook: your own, from `results/<site>/`, where that
case has finished, otherwise the committed one, from `results/reference/`. Pages
are staged under `_build/stage/` so that their addresses do not depend on whose
results they show.
"""

from helpers.book.building import NOT_PAGES, build, first_warning, stage
from helpers.book.pages import Page, find_pages, is_finished, read_notebook, toc_files
from helpers.book.rendering import render_origin, render_page
from helpers.book.tables import render_bars, render_profile_sources, render_profiles, render_schema

__all__ = [
    "NOT_PAGES",
    "Page",
    "build",
    "find_pages",
    "first_warning",
    "is_finished",
    "read_notebook",
    "render_bars",
    "render_origin",
    "render_page",
    "render_profile_sources",
    "render_profiles",
    "render_schema",
    "stage",
    "toc_files",
]
