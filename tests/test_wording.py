"""Counts with nouns, and changes in percentage points."""

import pytest

from learners.wording import count_with_noun, points_text


@pytest.mark.parametrize(
    ("n", "noun", "text"),
    [
        (1, "data set", "1 data set"),
        (0, "row", "0 rows"),
        (2000, "data set", "2,000 data sets"),
        (2, "entry", "2 entries"),
    ],
)
def test_a_count_agrees_with_its_noun(n, noun, text):
    assert count_with_noun(n, noun) == text


def test_points_never_have_an_exponent():
    assert [points_text(points) for points in (100.0, -99.96, 0.1, -0.04)] == ["+100.0", "-100.0", "+0.1", "-0.04"]
