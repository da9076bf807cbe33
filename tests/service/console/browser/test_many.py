"""A thousand columns and ten thousand jobs in a real browser: pages show a part, and lead to the rest."""

import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn
from tests.service.console.browser.driving import needs_browser, visit
from tests.service.forks import local_server

pytestmark = needs_browser
N_COLUMNS, N_JOBS, A_PAGE = 1000, 10_000, 50
# Tasks that block the page for longer than a person waits: the browser itself notes those of 50 ms and more.
LONG_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ type: "longtask", buffered: true });
"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(1)
    y = rng.random(200) < 0.5
    columns = {f"column{i:04d}": np.where(rng.random(200) < 0.3, y, rng.random(200) < 0.5) for i in range(N_COLUMNS)}
    pq.write_table(pa.table({**columns, "y": np.where(y, "yes", "no")}), folder / "wide.parquet")
    settings = Settings(
        workspace=folder / "workspace", job_workers=0, request_timeout_s=600, slow_request_s=600, query_s=60
    )
    with Workspace(settings) as workspace:
        learn(workspace, folder / "wide.parquet", "wide", target="y")
        product.job_queue(workspace).submit("train", {"model": "wide", "dataset": "d"})
        repeat_job(workspace.layout.control_path)
    with local_server(settings) as server:
        yield server.url


def repeat_job(control):
    """The one job there is, ten thousand times: submitting each takes 3 ms."""
    with sqlite3.connect(control) as database:
        for table, moment in (("workflow_status", "created_at"), ("workflow_input", None)):
            cursor = database.execute(f"SELECT * FROM {table}")
            names = [each[0] for each in cursor.description]
            row = dict(zip(names, cursor.fetchone(), strict=True))
            rows = []
            for number in range(1, N_JOBS):
                own = {**row, "workflow_uuid": f"job-{number:08d}"}
                if moment is not None:
                    own[moment] = row[moment] - number * 1000
                rows.append(tuple(own.values()))
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)


def test_a_thousand_columns(browser, crowded):
    with visit(browser, crowded) as tab:
        tab.page.add_init_script(LONG_TASKS)
        tab.explore("/console/models/wide/what-if")
        assert tab.page.locator("#columns details").count() == 60
        assert "940 more columns" in tab.page.inner_text("#more")
        with tab.settling():
            tab.page.fill("#find", "column0777")
            tab.page.locator('#columns details[data-column="column0777"] .value').first.click()
        assert "column0777" in tab.page.inner_text("#chosen")
        tab.go("/console/models/wide/graph")
        assert 0 < tab.page.locator(".structure .node").count() <= 101, "those around the class"
        tab.go("/console/models/wide/graph?around=column0777")
        assert "column0777" in tab.page.inner_text("#outline")
        tab.go("/console/models/wide")
        tab.check()


def test_ten_thousand_jobs(browser, crowded):
    with visit(browser, crowded) as tab:
        tab.go("/console/jobs")
        seen: list[str] = []
        for _ in range(3):
            ids = tab.page.eval_on_selector_all("#jobs tbody a", "links => links.map((each) => each.href)")
            assert len(ids) == A_PAGE
            seen += ids
            here = tab.page.url
            tab.page.click("text=older jobs")
            # Not until the first job differs: it does so, too, when a new one comes.
            tab.page.wait_for_url(lambda url, here=here: url != here)
        assert len(set(seen)) == 3 * A_PAGE, "no job twice"
        tab.go("/console/jobs?state=queued")
        assert tab.page.locator("#jobs tbody tr").count() == A_PAGE
        tab.go("/console")
        assert f"{N_JOBS} wait" in tab.page.inner_text("#at-work")
        tab.check()
