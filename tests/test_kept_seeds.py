"""Random tests store the seeds with which they fail, and run these first."""

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.machines import run_machine
from tests.support.kept_seeds import KEPT, kept_seeds

RUN: list[int] = []
LIMIT = {"most": 50}


class Numbers(RuleBasedStateMachine):
    """Fails as soon as it draws a number above the limit."""

    @rule(number=st.integers(0, 1000))
    def draw(self, number):
        RUN.append(number)
        assert number <= LIMIT["most"], "above the limit"


def test_a_failing_seed_is_stored_and_runs_first(tmp_path):
    file = tmp_path / "seeds.json"
    file.write_text("{}")
    LIMIT["most"] = 50
    with pytest.raises(AssertionError, match="above the limit"):
        run_machine(Numbers, 5, 20, 7, file)
    failing = {"examples": 5, "steps": 20, "number": 7}
    assert json.loads(file.read_text()) == {"Numbers": [failing]} and kept_seeds("Numbers", file) == [failing]
    first = RUN.copy()
    RUN.clear()
    with pytest.raises(AssertionError, match="above the limit"):
        run_machine(Numbers, 5, 20, 8, file)
    assert RUN[: len(first)] == first, "the stored seed draws what it drew"
    assert kept_seeds("Numbers", file) == [failing], "it is stored once, and seed 8 was not reached"
    LIMIT["most"] = 1000
    run_machine(Numbers, 5, 20, 8, file)
    assert kept_seeds("Numbers", file) == [failing], "a repaired fault stays in the file"


def test_what_is_stored_can_be_run():
    stored = json.loads(KEPT.read_text())
    sources = "".join(path.read_text() for path in Path(__file__).parent.rglob("*.py"))
    assert all(f"class {name}" in sources for name in stored), "a seed of a machine or history that is gone"
