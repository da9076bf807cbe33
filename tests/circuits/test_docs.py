"""The examples of docs/explanation/circuits.md run, and say what is true."""

import re
from pathlib import Path

from learners.models.query import Query

TEXT = (Path(__file__).parents[2] / "docs" / "explanation" / "circuits.md").read_text()


def test_the_examples_run_one_after_the_other():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "docs/explanation/circuits.md", "exec"), names)
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
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "densities.md").read_text()
    names = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/how-to/densities.md", "exec"), names)
    assert names["whole"].null_count == 0 < names["batch"].column("umbrella").null_count
