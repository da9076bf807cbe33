"""What docs/explanation/storage.md shows works as it is written there."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa

DOCUMENT = (Path(__file__).parents[2] / "docs" / "explanation" / "storage.md").read_text(encoding="utf-8")


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    # The champion moves once before, so that the example has something to roll back to.
    example = example.replace(
        "    roll_back(",
        '    add_version(control, replace(get_version(control, "adult"), version=reserve_version(control, "adult")))\n'
        '    set_alias(control, "adult", "champion", 2)\n    n = roll_back(',
    )
    names = {"arrays": {"x": np.arange(3)}, "header": {"kind": "kdb"}, "tables": {"t": pa.table({"a": [1]})}}
    names |= {"metrics": {}, "job_id": None, "files": (), "n_rows": 1}
    exec("from dataclasses import replace\n" + example, names)
    assert names["n"] == 1
    assert names["header"] == {"kind": "kdb"}
    assert names["arrays"]["x"].tolist() == [0, 1, 2]


def test_every_error_that_a_user_can_mend_is_explained():
    for name in ("CorruptFile", "Unwritable", "ControlUnavailable", "NewerDatabase", "Unstorable"):
        assert f"`{name}`" in DOCUMENT
