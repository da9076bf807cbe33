"""More cut points than a byte tells apart: however a model comes about, it is the same bit for bit."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from learners import Source, collect, drive
from learners.passes.learner import MemoryStore
from learners.passes.sources.row_filter import Selection, select_newest_rows
from learners.schema import Kept
from tests.support.ensembles import PARAMETERS, fresh, schema_of
from tests.support.passes import User, days, learned, same, write

N_DAYS = 6
PER_DAY = 200


@pytest.fixture
def folder(tmp_path):
    return days(tmp_path, N_DAYS, n=PER_DAY)


@pytest.mark.parametrize("name", ["eskdb", "auto"])
def test_a_refresh_equals_training_from_scratch(folder, name):
    """A new file brings a new category, the first nulls and a new class."""
    store, kept = MemoryStore(), Kept(schema_of(folder))
    first = learned(name, PARAMETERS, Source.open(folder), kept, store)
    write(folder, N_DAYS, ("b", "aa"), PER_DAY, nulls=True, classes=("maybe", "no"))
    source, accounts = Source.open(folder), []
    refreshed = learned(name, PARAMETERS, source, Kept(first.schema), store, accounts=accounts)
    assert same(refreshed, learned(name, PARAMETERS, source, kept))
    assert accounts[0].n_files_read == accounts[1].n_files_read == 1
    assert max(len(attribute.cuts) for attribute in refreshed.schema.attributes) > 255
    assert refreshed.schema.classes == ("maybe", "no", "yes")


@pytest.mark.parametrize("name", ["eskdb", "auto"])
def test_a_window_subtracts_what_leaves(folder, name):
    store, kept = MemoryStore(), Kept(schema_of(folder))
    for day in range(N_DAYS, N_DAYS + 2):
        chosen = select_newest_rows(Source.open(folder), "4d", "time")
        model = learned(name, PARAMETERS, chosen.source, kept, store, chosen)
        write(folder, day, n=PER_DAY)
    assert same(model, learned(name, PARAMETERS, chosen.source, kept))


@pytest.mark.parametrize("name", ["eskdb", "auto"])
def test_rows_are_forgotten_by_subtracting_them(folder, name):
    store, source, kept = MemoryStore(), Source.open(folder), Kept(schema_of(folder))
    learned(name, PARAMETERS, source, kept, store)
    chosen = Selection(source, {0: (User(),), **dict.fromkeys(range(1, N_DAYS), ())})
    accounts = []
    model = learned(name, PARAMETERS, chosen.source, kept, store, chosen, accounts)
    assert accounts[0].n_files_read == 1, "only the file that holds such rows"
    rest = [pq.read_table(folder / f"{day:02d}.parquet") for day in range(N_DAYS)]
    rest[0] = rest[0].filter(pc.not_equal(rest[0]["user"], 3))
    assert same(model, drive(fresh(name, kept), Source.of_table(pa.concat_tables(rest))))


class Saved:
    """What a pass that was killed has left."""

    every_s = 60.0

    def __init__(self, table, note):
        self.table, self.note = table, note

    def load(self):
        return self.table, self.note


@pytest.mark.parametrize("name", ["eskdb", "auto"])
def test_a_run_killed_in_every_pass_goes_on_to_the_same_model(folder, monkeypatch, name):
    kept, source, passes = Kept(schema_of(folder)), Source.open(folder), []

    def resumed(statistic, source, **more):
        half = source.only(range(N_DAYS // 2))
        assert half.fragments == source.fragments[: len(half.fragments)]
        note = {"fragments": list(range(len(half.fragments)))}
        saved = Saved(collect(statistic, half).to_arrow(), note)
        found = collect(statistic, source, **more | {"checkpoint": saved, "on_progress": None})
        passes.append(found)
        return found

    with monkeypatch.context() as patched:
        patched.setattr("learners.passes.learner.collect", resumed)
        model = drive(fresh(name, kept), source, threads=2)
    assert len(passes) >= 3
    assert same(model, drive(fresh(name, kept), source, threads=1))
