"""The tour of the README, run as it stands, in order."""

import json
import re
import shutil

import pyarrow.parquet as pq
import pytest

from service.settings import Settings
from tests.service.forks import local_server, shell
from tests.support.docs import block

SERVE = "fewpass serve "


def test_the_example_prints_what_the_readme_shows(tmp_path):
    (tmp_path / "example.py").write_text(block("Joint distribution", "python"))
    shown = shell("python example.py", tmp_path)
    assert shown == block("Joint distribution", "text")


@pytest.mark.timeout(1500)  # commands in dozens
@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="bash and curl are needed")
def test_the_tour_runs_as_it_stands(tmp_path, monkeypatch):
    tour = block("On the command line:")
    assert SERVE in tour.splitlines()[-1]
    script = block("make a few tables") + "\n".join(tour.splitlines()[:-1])
    shown = shell(script, tmp_path)
    assert "means over 2 data sets" in shown
    assert pq.read_metadata(tmp_path / "scored.parquet").num_rows == 2000
    monkeypatch.chdir(tmp_path)
    with local_server(Settings(workspace=tmp_path / "workspace", warm_up=False)) as server:
        calls = block("Over HTTP").replace("localhost:8000", server.url.removeprefix("http://"))
        submit, predict = (call for call in re.split(r"(?=^curl )", calls, flags=re.MULTILINE) if call)
        job = json.loads(shell(submit, tmp_path))
        assert job["kind"] == "train" and "id" in job
        shell(f"fewpass jobs watch {job['id']}", tmp_path)
        answer = json.loads(shell(predict, tmp_path))
        assert answer["model"] == "income" and answer["classes"] == ["<=50K", ">50K"]
