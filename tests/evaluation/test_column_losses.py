"""What columns are worth on rows: whatever their order, with an error, and nothing where they tell nothing."""

import numpy as np
import pandas as pd
import pytest

import fewpass


def frame_of(n_rows, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < 0.5
    town = np.where(rng.random(n_rows) < 0.85, np.where(y, "bern", "kiel"), "rome")
    columns = {"from": town, "to": np.char.add("to ", town), "noise": rng.choice(list("abc"), n_rows)}
    return pd.DataFrame(columns | {"class": np.where(y, "yes", "no")})


def test_columns_that_say_the_same_share_what_they_tell():
    """By the information that a network adds, the first took all."""
    train, rows = frame_of(2000, 1), frame_of(1500, 2)
    numbers = fewpass.NB().fit(train, "class").report(rows).numbers
    found = {share.column: share for share in numbers.shares}
    assert abs(found["from"].share - found["to"].share) < 0.15
    assert abs(found["noise"].loss) < 4 * found["noise"].error + 1e-3 and found["noise"].share < 0.05
    assert found["from"].loss > 10 * found["from"].error > 0
    assert sum(share.share for share in numbers.shares) == pytest.approx(1)
    turned = fewpass.NB().fit(train[["noise", "to", "from", "class"]], "class")
    again = {share.column: share for share in turned.report(rows).numbers.shares}
    assert again["to"].loss == pytest.approx(found["to"].loss, abs=1e-9)
    assert [share.column for share in turned.report(rows).numbers.shares][2] == "noise"


def test_the_page_and_the_numbers_say_the_same():
    page = fewpass.NB().fit(frame_of(500, 1), "class").report(frame_of(500, 2))
    first = page.numbers.shares[0]
    assert f"{first.loss:+.4f} ± {first.error:.4f}" in page.html
    assert "How much the log loss of these rows grows" in page.html


def test_reports_of_earlier_releases_have_shares_alone():
    page = fewpass.NB().fit(frame_of(500, 1), "class").report(frame_of(500, 2)).numbers
    stored = page.to_dict() | {"shares": [["from", 1.0]]}
    share = type(page).from_dict(stored).shares[0]
    assert (share.column, share.share, share.loss, share.error) == ("from", 1.0, None, None)
