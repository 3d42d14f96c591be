"""The pages, a module for each subject."""

from __future__ import annotations

from starlette.routing import Route

from odradek.console.pages import cluster, files, groups, home, pipelines, records, search, topics

_PAGES = (home, topics, records, search, groups, cluster, files, pipelines)

ROUTES: list[Route] = [route for page in _PAGES for route in page.ROUTES]
"""All pages but the login, and those that change something."""
