"""Every promise of docs/promises.md and docs/reliability.md names tests that exist, and every how-to page has a row."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TABLES = [DOCS / "promises.md", DOCS / "reliability.md"]


def named_tests(page):
    """(file, function or "") of each test that a page names."""
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", page.read_text())


def rows(page):
    """The cells of each row of the tables whose last column names tests."""
    lines = re.findall(r"(?m)^\| (.+) \|$", page.read_text())
    return [cells for line in lines if "`tests/" in (cells := line.split(" | "))[-1]]


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.name)
def test_every_named_test_exists(page):
    assert len(rows(page)) > 15
    for file, function in named_tests(page):
        assert (ROOT / file).is_file(), f"{page.name} names {file}, which is gone"
        if function:
            functions = {
                one.name for one in ast.parse((ROOT / file).read_text()).body if isinstance(one, ast.FunctionDef)
            }
            assert function in functions, f"{page.name} names {file}::{function}, which is gone"


def test_every_promise_has_a_test():
    lines = [
        line
        for page in TABLES
        for line in re.findall(r"(?m)^\| promise \| test \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page.read_text())
    ]
    assert lines
    for line in "".join(lines).splitlines():
        assert "`tests/" in line, f"name the test that holds this: {line}"


def test_every_how_to_page_has_a_row():
    text = (DOCS / "promises.md").read_text()
    missing = [page.name for page in sorted((DOCS / "how-to").glob("*.md")) if f"how-to/{page.name}" not in text]
    assert not missing, "name the promises of these pages and their tests in docs/promises.md"
