"""The documentation as a site: `make docs` builds it into build/site, and fails on a broken link or a page without a place."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

project = "fewpass"
author = "the fewpass developers"
project_copyright = "the fewpass developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns: list[str] = []
html_theme = "furo"
html_title = "fewpass"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
suppress_warnings = ["myst.header", "ref.python"]  # names of types that several classes have


def skip(app: object, what: str, name: str, member: object, is_skipped: bool, options: object) -> bool:
    """Leave out what scikit-learn documents itself."""
    del app, what, name, options
    return is_skipped or str(getattr(member, "__module__", "")).startswith("sklearn")


def as_text(app: object, what: str, name: str, member: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with numpydoc sections: a trailing underscore or a star in them is no markup."""
    del app, what, name, member, options
    lines[:] = [re.sub(r"(?<![`\w])(\w+_)(?![\w`])", r"``\1``", line).replace("*", r"\*") for line in lines]


def setup(app: Sphinx) -> None:
    """Write the reference pages before Sphinx looks for pages."""
    from generate import write_pages

    write_pages(HERE / "reference" / "generated")
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", as_text, priority=100)  # before napoleon adds markup
