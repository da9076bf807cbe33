"""The blocks of code of the README and the pages of docs."""

import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()
# Pages whose Python needs nothing but a few tables: tests/test_docs_code.py runs it; other pages have tests of their own.
ALONE = ("how-to/python.md", "how-to/in-and-out.md", "how-to/evaluation.md", "reference/learners.md")


def block(after, language="sh"):
    """The first block of code of the README after some words."""
    found = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert found is not None
    return found[1]
