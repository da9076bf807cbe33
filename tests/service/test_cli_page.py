"""The commands of docs/reference/cli.md run as they stand, line by line, in one workspace with the models that they name."""

import json
import re
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service.forks import shell

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
# The beginning or a part of a line, and why it is not run here.
NOT_RUN = {
    "fewpass demo": "a minute; tests/service/operations/test_demo.py",
    "fewpass precompile": "minutes",
    "fewpass bench": "minutes",
    "fewpass serve": "lasts; tests/service/processes",
    "fewpass worker": "lasts; tests/service/jobs",
    "s3://": "needs a store",
    "models:/": "needs MLflow; tests/fewpass/test_mlflow.py",
    "patients": "chains of minutes",
    "job-1a1fb751a1b": "a job of a server; tests/service/cli/test_outputs.py",
    "jobs output": "a job of a server",
    "jobs submit": "needs a worker to end",
    "schedules run": "needs a worker",
    "alerts --mute": "an alert of one's own",
    "webhooks": "an address of one's own; tests/service/cli/test_outputs.py",
    "monitor income --forget": "a served prediction; tests/service/http/test_monitoring.py",
    "fewpass labels": "served predictions; tests/service/http/test_monitoring.py",
    "--train-rows": "a curve of minutes",
    "random-forest": "minutes; tests/service/test_how_to.py",
    "models rollback": "needs two moves of the alias",
    "--check --json": "exits with 3 where something alarms",
}
# What stands for something of one's own; a range of a column in intervals ends at cut points, here those of this table.
OWN = {"age=30..40": "age=32..43", "job-1a2b3c": "RECEIPT", "/backups/monday": "backups/monday"}
pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not shutil.which("bash"), reason="bash is needed"),
]


def lines():
    """The commands of the page in order, without those that are not run."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    shown = [
        line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("fewpass ")
    ]
    return [line for line in shown if not any(mark in line for mark in NOT_RUN)]


def people(seed, n_rows=900):
    draw = np.random.default_rng(seed)
    age, sex = draw.integers(18, 70, n_rows), draw.choice(["Female", "Male"], n_rows)
    education = draw.choice(["School", "Bachelors", "Masters"], n_rows, p=[0.6, 0.3, 0.1])
    job = draw.choice(["Sales", "Tech", "Farm"], n_rows)
    is_rich = draw.random(n_rows) < (age > 35) * 0.2 + (education != "School") * 0.4
    columns = {"customer_id": draw.integers(1, 90, n_rows), "age": age, "sex": sex, "education": education, "job": job}
    return pa.table(columns | {"income": np.where(is_rich, ">50K", "<=50K")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files and models with the names of the page."""
    place = tmp_path_factory.mktemp("cli-page")
    for seed, name in enumerate(("data", "new", "january", "december", "labelled", "test", "newest")):
        table = people(seed)
        pq.write_table(
            table.append_column("class", table["income"]) if name == "data" else table, place / f"{name}.parquet"
        )
    draw = np.random.default_rng(1)
    size = draw.normal(size=(300, 3)).cumsum(axis=1)
    pq.write_table(pa.table(dict(zip(("flow", "heat", "level"), size.T, strict=True))), place / "sensors.parquet")
    with duckdb.connect(str(place / "shop.db")) as shop:
        shop.sql("CREATE TABLE orders AS SELECT i % 7 AS size, i % 7 > 3 AS late FROM range(500) t(i)")
    rain = draw.random(400) < 0.3
    garden = {"rain": np.where(rain, "yes", "no"), "lawn": np.where(rain | (draw.random(400) < 0.2), "wet", "dry")}
    pq.write_table(pa.table(garden), place / "garden.parquet")
    job = {"kind": "train", "uris": [str(place / "new.parquet")], "target": "income", "model": "income"}
    (place / "job.json").write_text(json.dumps(job))
    train = "fewpass train new.parquet --target income --learner kdb --name income"
    shell(
        f"{train} --alias champion && {train} --k 1 && {train} --learner nb\n"
        "fewpass train new.parquet --learner spn --name joint --alias champion\n"
        "fewpass train new.parquet --target income -l kdb --name sales\n"
        "fewpass train sensors.parquet --learner orders --name plant --holdout 0\n"
        "fewpass train garden.parquet --learner orders --name garden --holdout 0\n"
        "fewpass models network garden --out asia.bif && fewpass models delete garden --all\n"
        "fewpass models import asia.bif --name garden\n"
        "fewpass forget sales --where 'customer_id = 8'\n",
        place,
    )
    return place


def test_every_line_runs(folder):
    (receipt, *_) = json.loads(shell("fewpass receipts list --json", folder))
    shown = "\n".join(lines())
    for text, own in OWN.items():
        shown = shown.replace(text, own)
    failed = []
    for line in shown.replace("RECEIPT", receipt["id"]).splitlines():
        try:
            shell(line, folder)
        except AssertionError as error:
            failed.append(f"{line}\n{str(error)[:600]}")
    assert not failed, "\n\n".join(failed)


def test_every_reason_has_a_line():
    assert [mark for mark in NOT_RUN if mark not in PAGE] == []
