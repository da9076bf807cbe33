"""Files whose rows are all later than those that a version learned."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from service import product
from tests.service.asking import training
from tests.support.cli import fewpass
from tests.support.estimators import KEEP, WORDS, N, table


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_commands_say_it_once(ending, workspace, tmp_path):
    def written(name, rows):
        path = tmp_path / f"{name}.{ending}"
        pq.write_table(rows, path) if ending == "parquet" else pa.csv.write_csv(rows, path)
        return path

    request = training(written("old", table()), target="y", learner="nb", columns=KEEP, holdout=0)
    product.train_model_version(workspace, request)
    later, same = written("later", table(N + 52)), written("same", table(200, 300))
    place, name = tmp_path / "workspace", request.model
    for command in (["evaluate", name, later], ["report", name, later, "--html", tmp_path / "r.html"],
                    ["predict", name, later, "--out", tmp_path / "p.parquet"]):  # fmt: skip
        assert " ".join(fewpass(*command, workspace=place).stderr.split()).count(WORDS) == 1
        again = [*("--force" for _ in command[3:4])]
        command = [same if part == later else part for part in command]
        assert "later than" not in fewpass(*command, *again, workspace=place).stderr
    assert json.loads(fewpass("evaluate", name, later, "--json", workspace=place).stdout)["warnings"] == [WORDS]
