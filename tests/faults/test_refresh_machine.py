"""Exactness as a state machine: whatever happens to the files, an update is the model of the rows as they are, bit for bit.

The twin reads every file anew, chooses rows by NumPy and knows no statistic, no selection and no identity of a file. `make test`
takes a few hundred steps, `make faults` some thousand (FEWPASS_TEST_STEPS).
"""

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from learners import Source, load_model
from learners.errors import LearnerError
from learners.passes.learner import Part, drive
from learners.registry import recipes
from learners.schema import Kept, Schema
from service import product
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.models.compiled import map_compiled
from tests.machines import run_machine
from tests.processes import record
from tests.support.passes import same

DAY_S = 86_400
START_S = 1_767_225_600
NAMES = ["+first", *(f"{day:02d}" for day in range(6))]
WINDOWS = [None, None, "1f", "2f", "1d", "30h", "3d"]  # files, days, hours
DROPPABLE = ("x1", "x2", "number")
LEARNERS = [("nb", {}), ("nb", {"m": 1.0}), ("tan", {"m": 1.0}), ("kdb", {"k": 2}), ("skdb", {"k": 2, "m": 1.0})]
WIDTHS = {"double": pa.float64(), "float": pa.float32(), "int": pa.int32(), "short": pa.int16()}


PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
HOW = {"compression": "none", "use_dictionary": False, "row_group_size": 90}  # what changes in place stays as long

changes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "n": st.sampled_from([30, 120, 200]),
        "values": st.sampled_from([("a", "b", "c"), ("b", "c"), ("a", "b", "new"), ("0", "a", "zz")]),
        "classes": st.sampled_from([("no", "yes")] * 3 + [("maybe", "no", "yes")]),
        "moved": st.sampled_from([0.0, 0.0, 2.5, -40.0]),
        "width": st.sampled_from(sorted(WIDTHS)),
        "nulls": st.booleans(),
        "unit": st.sampled_from(["ms", "us", "ns"]),
        "zone": st.sampled_from(["UTC", "Europe/Berlin"]),
        "is_text_wide": st.booleans(),
        "turned": st.integers(0, 6),
    }
)


def rows_of(day, change, *, is_zoned):
    """The rows of a file: attributes, a user, a time on its day, and a class."""
    rng, n = np.random.default_rng([change["seed"], day]), change["n"]
    classes, values = change["classes"], change["values"]
    y = np.concatenate([[0, len(classes) - 1], rng.integers(0, len(classes), n - 2)])

    def masked(filled):
        return rng.random(filled.size) < 0.1 if change["nulls"] else None

    columns: dict[str, pa.Array] = {}
    for j in range(3):
        codes = (y * (rng.random(n) < 0.6) + rng.integers(0, len(values), n)) % len(values)
        text = pa.large_string() if change["is_text_wide"] else pa.string()
        columns[f"x{j}"] = pa.array(np.array(values)[codes], text, mask=masked(codes) if j else None)
    number = np.round(rng.normal(size=n) * 3 + 4 * y + change["moved"])
    columns["number"] = pa.array(number, mask=masked(number)).cast(WIDTHS[change["width"]])
    columns["user"] = pa.array(rng.integers(0, 5, n))
    seconds = (START_S + day * DAY_S + rng.integers(0, DAY_S, n)) * PER_SECOND[change["unit"]]
    zone = change["zone"] if is_zoned else None
    columns["time"] = pa.array(seconds, mask=masked(seconds)).cast(pa.timestamp(change["unit"], zone))
    columns["class"] = pa.array(np.array(classes)[y])
    names = list(columns)
    turned = names[change["turned"] :] + names[: change["turned"]]
    return pa.table({name: columns[name] for name in turned})


def seconds_of(table):
    """Seconds since 1970 as float64; NaN for null."""
    counted = table["time"].combine_chunks().cast(pa.int64())
    floats = counted.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return floats / PER_SECOND[table["time"].type.unit]


class Refreshes(RuleBasedStateMachine):
    """A folder of files, what was forgotten, and a model that follows."""

    counted: ClassVar[Counter[str]] = Counter()

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="fewpass-refreshes-"))
        self.data = self.root / "data"
        self.data.mkdir()
        self.workspace = Workspace(Settings(workspace=self.root / "workspace", threads=1))
        self.dropped: set[str] = set()
        self.users: set[int] = set()
        self.kept: dict[frozenset[str], Schema] = {}
        self.has_model = False

    def teardown(self):
        self.workspace.close()
        shutil.rmtree(self.root)

    @initialize(learner=st.sampled_from(LEARNERS), is_zoned=st.booleans(), first=changes, second=changes)
    def begin(self, learner, is_zoned, first, second):
        self.learner, self.is_zoned = learner, is_zoned
        self._write("00", first)
        self._write("01", second)

    def _path(self, name):
        return self.data / f"{name}.parquet"

    def _write(self, name, change):
        pq.write_table(rows_of(NAMES.index(name), change, is_zoned=self.is_zoned), self._path(name), **HOW)

    @property
    def files(self):
        return sorted(path.stem for path in self.data.glob("*.parquet"))

    @rule(name=st.sampled_from(NAMES), change=changes)
    def add_or_replace(self, name, change):
        self.counted["replace" if name in self.files else "add"] += 1
        self._write(name, change)

    @rule(draw=st.data())
    def change_in_place(self, draw):
        """Two rows change their classes; size, time of change and footer stay."""
        path = self._path(draw.draw(st.sampled_from(self.files)))
        before, status, table = path.read_bytes(), path.stat(), pq.read_table(path)
        classes = table["class"].to_pylist()
        place = draw.draw(st.integers(0, min(80, len(classes) - 2)))
        classes[place], classes[place + 1] = classes[place + 1], classes[place]
        index = table.schema.get_field_index("class")
        pq.write_table(table.set_column(index, "class", pa.array(classes)), path, **HOW)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        length = int.from_bytes(before[-8:-4], "little") + 8
        assert path.read_bytes()[-length:] == before[-length:]
        self.counted["change in place"] += 1

    @precondition(lambda self: len(self.files) > 1)
    @rule(draw=st.data())
    def remove(self, draw):
        self._path(draw.draw(st.sampled_from(self.files))).unlink()
        self.counted["remove"] += 1

    @rule(column=st.sampled_from(DROPPABLE))
    def drop_or_take_back(self, column):
        self.dropped ^= {column}
        self.counted["drop columns"] += 1

    @precondition(lambda self: self.has_model and len(self.users) < 3)
    @rule(user=st.integers(0, 4))
    def forget(self, user):
        request = ForgetRequest(model="m", where=f"user = {user}", retrain=False, prove=False)
        product.forget_rows(self.workspace, request)
        self.users.add(user)
        self.kept = {}  # such cut points may be theirs
        self.counted["forget"] += 1

    @precondition(lambda self: self.has_model)
    @rule()
    def lose_the_schemas(self):
        """Which anybody may: the next training finds cut points and order anew."""
        shutil.rmtree(self.workspace.layout.model_directory("m") / "data" / "schemas", ignore_errors=True)
        self.kept = {}
        self.counted["new cut points"] += 1

    @rule(
        window=st.sampled_from(WINDOWS),
        verify=st.sampled_from([False, False, True]),
        cuts=st.sampled_from(["auto", "auto", "fresh", "kept"]),
    )
    def train(self, window, verify, cuts):
        (name, parameters), columns = self.learner, dict.fromkeys({"user", "time", *self.dropped}, "drop")
        asked = {"uris": [str(self.data)], "target": "class", "learner": name, "parameters": parameters, "model": "m"}
        asked |= {"update": True, "holdout": 0, "window": window, "verify": verify, "cuts": cuts}
        # An update keeps what an earlier one said of a column: an empty entry takes it back.
        asked |= {"columns": {column: {} for column in DROPPABLE} | columns}
        asked |= {"timestamp": "time"} if window and window[-1] != "f" else {}
        key = frozenset(self.dropped)
        try:
            known = self.kept.get(key)
            expected = self._from_scratch(window, columns, None if known is None else Kept(known, cuts))
        except LearnerError:
            with pytest.raises(LearnerError, match=r"\w"):
                product.train_model_version(self.workspace, TrainRequest(**asked))
            self.counted["refused alike"] += 1
            return
        version = product.train_model_version(self.workspace, TrainRequest(**asked))
        model = load_model(*map_compiled(version.arrow_path))
        assert same(model, expected)
        self.kept[key], self.has_model = model.schema, True
        self.counted["equal"] += 1
        self.counted[f"equal with {cuts} cut points"] += 1
        self.counted[f"equal with window {window[-1]}" if window else "equal without a window"] += 1

    def _from_scratch(self, window, columns, kept):
        text = ["x0", "x1", "x2", "class"]  # read as dictionaries, as their kinds are told so
        files = {name: pq.read_table(self._path(name), read_dictionary=text) for name in self.files}
        orders = Counter(tuple(table.column_names) for table in files.values())
        order = list(orders.most_common(1)[0][0])
        wanted = self.files[-int(window[:-1]) :] if window and window[-1] == "f" else self.files
        is_left = {name: ~np.isin(table["user"].to_numpy(), sorted(self.users)) for name, table in files.items()}
        newest = max(np.nanmax(seconds_of(table)[is_left[name]], initial=-np.inf) for name, table in files.items())
        parts = []
        for name in wanted:
            table = files[name]
            mask = is_left[name]
            if window and window[-1] != "f":
                length = int(window[:-1]) * {"d": DAY_S, "h": 3600}[window[-1]]
                mask &= seconds_of(table) > newest - length
            table = table.filter(pa.array(mask)).select(order)
            if table.num_rows:
                parts.append(Part(Source.of_table(table)))
        if not parts:
            raise LearnerError("There are no rows.")
        return drive(recipes.learner(*self.learner, "class", kept, columns), parts, threads=1)


def run(n_examples, n_steps, number):
    Refreshes.counted = Counter()
    run_machine(Refreshes, n_examples, n_steps, number)
    print(dict(Refreshes.counted))


def test_a_few_steps():
    run(3, 14, int(os.environ.get("FEWPASS_TEST_SEED", "0")))
    assert Refreshes.counted["equal"] > 5


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_many_steps():
    n_steps = int(os.environ.get("FEWPASS_TEST_STEPS", "4000"))
    run(max(1, n_steps // 40), 40, 1)
    record({"refreshes": dict(Refreshes.counted)})
