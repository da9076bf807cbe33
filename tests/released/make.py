"""Keep what a release writes: a workspace with its rows and answers, and pickled estimators.

git worktree add --detach OTHER TAG && cd OTHER && PYTHONPATH=. python THIS/tests/released/make.py 0.2.0 THIS/tests/released
"""

import json
import lzma
import pickle
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fewpass
from service import product
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

BY_CLASS = {
    "nb": ("nb", {}),
    "tan": ("tan", {}),
    "averaged": ("tan", {"average": True}),
    "kdb": ("kdb", {"k": 2}),
    "m": ("kdb", {"k": 2, "estimator": "m"}),
    "sampled": ("kdb", {"k": 1, "estimator": "hdp", "iterations": 200}),
    "skdb": ("skdb", {"k": 2}),
    "eskdb": ("eskdb", {"members": 2}),
    "auto": ("auto", {"members": 2}),
    "xgboost": ("xgboost", {"rounds": 5}),
    "spn": ("spn", {"structure": "chow-liu"}),
    "gibbs": ("gibbs", {"iterations": 20, "draws": 4}),
}
ROWS = [
    {"age": 30.0, "town": "rome", "job": "j3"},
    {"age": 61.0, "town": "oslo", "job": "j1"},
    {"age": 45.0, "job": "j2"},
    {"town": "never seen"},
    {},
]


def day(number: int) -> pa.Table:
    """400 people of one day."""
    rng = np.random.default_rng(number)
    age, town, job = rng.integers(18, 70, 400), rng.integers(0, 3, 400), rng.integers(0, 5, 400)
    odds = 0.06 * (age - 45) + (town == 1) - 0.8 * (job == 2) + rng.normal(size=400)
    return pa.table(
        {
            "person": np.char.mod("p%d", number * 400 + np.arange(400)),
            "age": pa.array(age.astype(float), mask=rng.random(400) < 0.05),
            "town": np.array(["oslo", "rome", "bern"])[town],
            "job": np.char.mod("j%d", job),
            "income": np.where(odds > 0, "high", "low"),
        }
    )


def write_workspace(folder: Path) -> None:
    """Train every learner on two days, two of them daily on the first, and two models of numbers; write down what they answer."""
    data = folder / "data"
    data.mkdir()
    days = [str(data / f"day{number}.parquet") for number in (1, 2, 3)]
    for number, path in enumerate(days, start=1):
        pq.write_table(day(number), path)
    x = np.random.default_rng(9).normal(size=(4, 300))
    x[1] += x[0]
    x[3] += x[2] - x[1]
    pq.write_table(pa.table(dict(zip("abcd", x, strict=True))), data / "numbers.parquet")
    numbers = [str(data / "numbers.parquet")]
    with Workspace(Settings(workspace=folder / "workspace", threads=1)) as workspace:

        def train(name, learner, parameters, uris, target="income", **given):
            request = {"uris": uris, "target": target, "learner": learner, "parameters": parameters, "model": name}
            product.train_model_version(workspace, TrainRequest(**request, **given))

        for name, (learner, parameters) in BY_CLASS.items():
            train(name, learner, parameters, days[:2])
        for learner, parameters in (("kdb", {"k": 2}), ("auto", {"members": 2})):
            train(f"{learner}-daily", learner, parameters, days[:1], update=True, holdout=0)
        train("density", "spn", {"structure": "hclt"}, numbers, None)
        train("structures", "orders", {}, numbers, None)
        models = {name: product.load_served_model(workspace, name) for name in (*BY_CLASS, "kdb-daily", "auto-daily")}
        answers = {name: [np.asarray(model.classify(row)).tolist() for row in ROWS] for name, model in models.items()}
    (folder / "answers.json").write_text(json.dumps({"rows": ROWS, "answers": answers}))


def pickles() -> bytes:
    """Some rows, and by name a pickled estimator and what it said of them."""
    table = day(1).drop_columns(["person"])
    rows = table.slice(0, 3).drop_columns(["income"]).to_pylist()
    own = {
        name: getattr(fewpass, name)() for name in ("FewPassClassifier", "NB", "TAN", "KDB", "SKDB", "ESKDB", "XGBoost")
    }
    own["SumProductNetwork"] = fewpass.SumProductNetwork(structure="chow-liu", target="income")
    kept = {}
    for name, estimator in own.items():
        fitted = estimator.fit(table) if name == "SumProductNetwork" else estimator.fit(table, "income")
        kept[name] = (pickle.dumps(fitted), fitted.predict_proba(rows))
    return pickle.dumps((rows, kept))


def main() -> None:
    """Write RELEASE.tar.xz and RELEASE.pickles.xz into a folder."""
    release, into = sys.argv[1], Path(sys.argv[2])
    (into / f"{release}.pickles.xz").write_bytes(lzma.compress(pickles(), preset=9))
    folder = Path(tempfile.mkdtemp())
    write_workspace(folder)
    with tarfile.open(into / f"{release}.tar.xz", "w:xz", preset=9) as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, entry.name)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
