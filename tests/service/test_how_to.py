"""The blocks of the how-to pages run in one workspace, that of the README, page by page as they stand.

`NOT_RUN` says which blocks are left out, and why; every other block of shell or Python must succeed.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.settings import Settings
from tests.processes import wait_for
from tests.service.forks import local_server, shell
from tests.support.docs import ALONE, block

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
# A text of the block, and why it is not run here.
NOT_RUN = {
    "pip install": "installs",
    "docker": "needs Docker",
    "kubectl": "needs a cluster",
    "FEWPASS_OIDC_ISSUER": "needs a company's login",
    "FEWPASS_CREDENTIALS_SHOP": "needs a store",
    "PYICEBERG_CATALOG": "needs a catalog",
    "postgresql://": "needs PostgreSQL",
    "make audit": "needs a package registry",
    "load_tests": "runs for minutes",
    "tritonclient": "needs Triton's client; tests/service/http/test_inference.py",
    "big.csv": "converts a file of one's own",
    "fp_…": "a key that is shown once; tests/service/http/test_security.py",
    "train … ": "options of any training",
    "sensors/": "tests/orders/test_docs.py",
    "query plant": "tests/orders/test_docs.py",
    "score plant": "tests/orders/test_docs.py",
    "models picture plant": "tests/orders/test_docs.py",
}
# What stands for something of one's own on a page.
OWN = {
    "/backups/$(date +%F)": "backups/day",
    "/backups/2026-11-21": "backups/day",
    "sha256sum --check MANIFEST.sha256": "(cd backups/day && sha256sum --check --quiet MANIFEST.sha256)",
    "https://hooks.example.com/fewpass": "https://93.184.216.34/hook",  # a name would have to be looked up
    "curl -s": "curl -s --fail-with-body",
    "train sales.parquet": "train articles.parquet",  # a table beside the folder `sales`
    "--repetitions 5": "--repetitions 1",
}
# Pages whose Python has a test of its own.
ELSEWHERE = (*ALONE, "how-to/structures.md")
pytestmark = [
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="bash and curl are needed"),
]


def blocks_of(page):
    """(language, text) of each block of shell or Python that is to run here."""
    text = (PAGES / page).read_text()
    found = re.findall(r"^```(sh|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    languages = ("sh",) if f"how-to/{page}" in ELSEWHERE else ("sh", "python")
    return [(of, code) for of, code in found if of in languages and not any(mark in code for mark in NOT_RUN)]


def pages():
    return [page.name for page in sorted(PAGES.glob("*.md")) if blocks_of(page.name)]


def draw_tables(folder):
    """The tables that the pages name, beside those of the README."""
    rng = np.random.default_rng(1)
    (folder / "sales").mkdir()
    (folder / "data").mkdir()
    for day in range(2):
        size, customer = rng.integers(0, 9, 600), rng.integers(1, 60, 600)
        bought = np.where(rng.random(600) < 0.1 + 0.08 * size, "yes", "no")
        sold = np.datetime64("2026-11-01") + day + np.sort(rng.random(600) * 86_400).astype("timedelta64[s]")
        table = pa.table({"customer_id": customer, "size": size, "sold_at": sold, "bought": bought})
        pq.write_table(table, folder / "sales" / f"day-{day}.parquet")
    article = rng.integers(0, 40, 3000)
    articles = pa.table({"article": article.astype(str), "age": (article + rng.integers(18, 40, 3000))})
    pq.write_table(articles, folder / "articles.parquet")
    new = pq.read_table(folder / "new.parquet")
    pq.write_table(new, folder / "january.parquet")
    for name in ("one", "two"):
        pq.write_table(new.slice(0, 400).drop_columns("customer_id"), folder / "data" / f"{name}.parquet")
    job = {"kind": "train", "uris": ["tables/*.parquet"], "target": "income", "learner": "nb", "model": "income"}
    (folder / "job.json").write_text(json.dumps(job))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with the README's tables and models, and a server of its workspace."""
    folder = tmp_path_factory.mktemp("how-to")
    tour = block("On the command line:").splitlines()
    (train,) = [line for line in tour if "--name income" in line]
    shell(block("make a few tables") + train, folder)
    draw_tables(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        settings = Settings(
            workspace=folder / "workspace", warm_up=False, monitoring_fold_s=0.1, monitoring_flush_s=0.1
        )
        with local_server(settings) as server:
            yield folder, server


def run(code, folder, server):
    for text, own in OWN.items():
        code = code.replace(text, own)
    return shell(code.replace("localhost:8000", server.url.removeprefix("http://")), folder)


def before(page, folder, server):
    """What a page takes for granted that another page or a day of work has left."""
    if page == "monitoring.md":
        record = [{"age": 41, "education": "Bachelors"}] * 50
        key = "-H 'x-prediction-key: order-17' -H 'content-type: application/json'"
        run(
            f"curl -s localhost:8000/v1/models/income/predict {key} -d '{json.dumps({'records': record})}'",
            folder,
            server,
        )
        asked = "curl -s 'localhost:8000/v1/models/income/monitoring?window=24h'"
        wait_for(lambda: json.loads(run(asked, folder, server)).get("rows", {}).get("served", 0) >= 50)
    if page == "in-and-out.md":
        run("fewpass models network income --out asia.bif", folder, server)
    if page == "schedules.md":
        dataset = {"name": "income", "uris": [f"{folder}/tables/*.parquet"], "target": "income"}
        kind = "-H 'content-type: application/json'"
        run(f"curl -s localhost:8000/v1/datasets {kind} -d '{json.dumps(dataset)}'", folder, server)
    if page in ("forget.md", "receipts.md") and "sales" not in run("fewpass models", folder, server):
        run("fewpass train 'sales/*.parquet' --target bought --name sales -l nb --update", folder, server)


@pytest.mark.parametrize("page", pages())
def test_the_page_runs(page, house):
    folder, server = house
    before(page, folder, server)
    for language, code in blocks_of(page):
        if language == "sh" and page == "receipts.md":
            run("fewpass forget sales --where 'customer_id = 8'", folder, server)
            (receipt, *_) = json.loads(run("fewpass receipts list --json", folder, server))
            code = code.replace("job-1a2b3c", receipt["id"]).replace("customer_id = 7", "customer_id = 8")
        if language == "sh" and page == "schedules.md":
            code = code.replace("schedules create nightly", "schedules create weekly")  # the block above has made it
        if language == "sh":
            run(code, folder, server)
        elif page == "receipts.md":
            (folder / "verify_receipt.py").write_text(code)
            assert "The receipt holds" in run("python verify_receipt.py receipt.json fewpass.pem", folder, server)
        else:
            exec(compile(code, page, "exec"), {"table": pq.read_table(folder / "new.parquet")})


def test_every_reason_has_a_block():
    text = "\n".join(path.read_text() for path in PAGES.glob("*.md"))
    assert [mark for mark in NOT_RUN if mark not in text] == []
