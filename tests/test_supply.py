"""What an installation brings, and what runs with a plain one."""

import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from learners import Source, drive
from learners.errors import ExtraMissing
from learners.registry import recipes
from service.product.views.pictures import draw_svg_picture

ROOT = Path(__file__).parent.parent
REQUIREMENTS = [
    Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())


XGBOOST = {
    "xgboost-cpu": [("linux", "x86_64"), ("linux", "aarch64"), ("win32", "AMD64")],
    "xgboost": [("win32", "ARM64"), ("linux", "ppc64le"), ("darwin", "x86_64"), ("darwin", "arm64")],
}


@pytest.mark.parametrize("name", XGBOOST)
def test_each_platform_gets_one_xgboost_without_code_for_gpus_where_it_is_published(name):
    for system, machine in XGBOOST[name]:
        here = {"sys_platform": system, "platform_machine": machine}
        asked = [r.name for r in REQUIREMENTS if r.marker is None or r.marker.evaluate(here)]
        assert [each for each in asked if each.startswith("xgboost")] == [name], here


def test_both_names_of_xgboost_are_pinned_to_one_version_and_no_gpu_library_is():
    assert PINNED["xgboost"] == PINNED["xgboost-cpu"]
    assert [name for name in PINNED if name.startswith(("nvidia", "cuda", "cupy"))] == []


def test_every_requirement_of_a_plain_install_is_pinned():
    names = {name.lower().replace("_", "-") for name in PINNED}
    assert [r.name for r in REQUIREMENTS if r.name.lower() not in names] == []


def brought(requirements, extras=("",)):
    """The names of all distributions that requirements bring here, with what these require."""
    names = set()
    waiting = [(one, extras) for one in requirements]
    while waiting:
        one, of = waiting.pop()
        if one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in of):
            continue
        name = canonicalize_name(one.name)
        if (name, frozenset(one.extras)) not in names:
            names.add((name, frozenset(one.extras)))
            inner = [Requirement(text) for text in distribution(name).requires or []]
            waiting += [(each, ("", *one.extras)) for each in inner]
    return {name for name, _ in names}


def test_a_plain_install_brings_sixty_packages_at_most():
    names = brought(REQUIREMENTS) | {"fewpass"}
    assert {"numpy", "psycopg-binary", "joblib"} <= names  # of ours, of an extra of dbos, of scikit-learn
    assert len(names) <= 60, sorted(names)


# Imported by none of what a plain install must run, with all that they bring.
OF_EXTRAS = [
    "cryptography",
    "matplotlib",
    "optuna",
    "arviz_stats",
    "pandas",
    "fsspec",
    "psycopg2",
    "networkx",
    "PIL",
    "psutil",
    "tenacity",
]
PLAIN = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import fewpass
from service.cli import app
from service.http.app import create_app
from service.settings import Settings
from starlette.testclient import TestClient

def run(*words):
    try:
        app(list(words), standalone_mode=False)
    except SystemExit as done:
        assert not done.code, words

run("train", "rows.parquet", "--target", "class", "--name", "of-trees")
run("predict", "of-trees", "rows.parquet", "--out", "answers.parquet")
run("query", "of-trees", "--of", "class", "--given", "a=1")
settings = Settings(job_workers=0, warm_up=False)
with TestClient(create_app(settings), base_url="http://localhost") as client:
    assert client.post("/v1/models/of-trees/predict", json={{"records": [{{"a": 1}}]}}).status_code == 200
print(fewpass.NB().fit("rows.parquet", "class").predict_proba({{"a": 1}}).sum())
"""


def test_a_plain_install_trains_predicts_queries_and_serves(tmp_path):
    a, b = np.random.default_rng(0).integers(0, 3, (2, 300))
    pq.write_table(pa.table({"a": a, "b": b, "class": np.char.mod("c%d", (a + b) % 2)}), tmp_path / "rows.parquet")
    path = str(ROOT)
    code = f"import sys; sys.path.insert(0, {path!r})" + PLAIN.format(extras=OF_EXTRAS)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("1.0\n") and (tmp_path / "answers.parquet").exists()


def test_what_needs_an_extra_names_it_before_it_works(tmp_path, monkeypatch):
    for name in ("matplotlib", "arviz_stats", "optuna"):
        monkeypatch.setitem(sys.modules, name, None)
    message = r"A picture needs matplotlib, which is not installed: pip install 'fewpass\[pictures\]'\."
    with pytest.raises(ExtraMissing, match=message):
        draw_svg_picture(lambda axes: None, tmp_path / "none.svg", "", 1, 1)
    rows = Source.of_table(pa.table({"a": [0, 1] * 20}))
    message = r"Learner gibbs needs arviz-stats, which is not installed: pip install 'fewpass\[gibbs\]'\."
    with pytest.raises(ExtraMissing, match=message):
        drive(recipes.learner("gibbs", {}, None), rows)
    monkeypatch.delitem(sys.modules, "arviz_stats")
    with pytest.raises(ExtraMissing, match=r"Tuning of priors \(trials\) needs optuna"):
        drive(recipes.learner("gibbs", {"trials": 2}, None), rows)
