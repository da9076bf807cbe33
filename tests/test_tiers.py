"""What `make test` leaves to `make test-slow` is there: no test drops out of both."""

import re
from pathlib import Path

from tests.conftest import SLOW, slow_tests

TESTS = Path(__file__).parent


def test_every_slow_file_and_test_exists():
    assert [place for place in SLOW if not (TESTS / place).exists()] == []
    for file, tests in slow_tests().items():
        text = (TESTS / file).read_text()
        names = {test.partition("::")[2].partition("[")[0].partition("::")[0] for test in tests}
        gone = [
            name for name in names if not re.search(rf"(?m)^(def|class) {name}\b", text) and f"{name} = " not in text
        ]
        assert not gone, f"slow.txt names tests of {file} that are gone: {gone}"


def test_slow_lines_are_sorted_and_named_once():
    lines = [line for line in (TESTS / "slow.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(set(lines))
