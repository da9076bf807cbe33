"""The table that the tests of Python share."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def frame():
    """A number and a word, which has gaps, tell of the class; `same` is left out."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    columns = {
        "size": rng.normal(y, 1.0),
        "word": np.array(["u", "v", "w"])[(y + (rng.random(300) < 0.2)) % 3],
        "same": ["s"] * 300,
        "small": rng.integers(0, 4, 300),
        "class": np.array(["no", "yes"])[y],
    }
    table = pd.DataFrame(columns)
    table.loc[::7, "word"] = None
    return table
