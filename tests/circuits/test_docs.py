"""The examples of docs/explanation/circuits.md run, and say what is true."""

import re
from pathlib import Path

from learners.models.query import Query

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "explanation" / "circuits.md").read_text()


def names_after(text):
    """What the examples of a page have defined, run one after the other."""
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, names)
    return names


def test_the_examples_run_one_after_the_other():
    names = names_after(TEXT)
    assert round(names["found"]["distributions"]["rain"]["yes"], 2) == 0.85
    fields = {"umbrella": "no"}
    best = names["answer"](names["circuit"], names["schema"], names["Map"](("season", "rain"), fields))
    assert best["assignment"] == {"season": "summer", "rain": "no"}


def test_every_structure_and_query_is_described():
    for name in ("chow_liu", "hclt", "learnspn", "random_regions"):
        assert f"`{name}(" in TEXT
    for query in Query.__args__:
        assert f"`{query.__name__}(" in TEXT


def test_the_example_of_the_page_on_densities_runs():
    names = names_after((DOCS / "how-to" / "densities.md").read_text())
    assert names["whole"].null_count == 0 < names["batch"].column("umbrella").null_count
