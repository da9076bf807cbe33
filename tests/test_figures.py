"""What .ci/figures.py says of figures beside those that are expected."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent / ".ci" / "figures.py"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_step_back_is_named_and_what_is_better_or_within_its_tolerance_is_not(figures):
    expected = {"log loss of auto on iris": 0.1, "processor time of x": 2.0, "memory of y": 400.0}
    assert figures.steps_back(expected, expected) == []
    found = {"log loss of auto on iris": 0.119, "processor time of x": 3.9, "memory of y": 100.0}
    assert figures.steps_back(found, expected) == []
    found = {"log loss of auto on iris": 0.121, "processor time of x": 4.1, "memory of z": 1.0}
    assert figures.steps_back(found, expected) == [
        "memory of z: no expected value; --write adds it.",
        "log loss of auto on iris: 0.121, expected 0.1, at most 0.12.",
        "processor time of x: 4.1, expected 2, at most 4.",
        "memory of y: no longer measured; --write drops it.",
    ]


def test_every_expected_figure_has_a_tolerance(figures):
    for name, value in json.loads(figures.EXPECTED.read_text()).items():
        assert value > 0 and name.startswith(tuple(figures.TOLERANCES)), name
