"""Windows in time that keep few rows, far after all others."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source
from learners.passes.sources.row_filter import lone_window_warnings, select_newest_rows

START, HOUR = datetime.datetime(2026, 1, 1), datetime.timedelta(hours=1)
FAR = datetime.datetime(2099, 1, 1)


def source_of(folder, *files):
    for number, times in enumerate(files):
        pq.write_table(pa.table({"t": times, "a": list(range(len(times)))}), folder / f"{number}.parquet")
    return Source.open(folder)


def hours(n, first=0):
    return [START + HOUR * hour for hour in range(first, first + n)]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.date32()])
def test_rows_of_the_far_future_are_named(kind, tmp_path):
    whole, mixed = pa.array(hours(500)), pa.array([*hours(498, 500), None, FAR])
    source = source_of(tmp_path, *(times.cast(kind, safe=False) for times in (whole, mixed)))
    kept = select_newest_rows(source, "30d", "t").source
    assert sum(batch.num_rows for batch in kept.batches(["a"])) == 1
    newest_before = "2026-02-11" if pa.types.is_date(kind) else "2026-02-11T13:00:00"
    assert lone_window_warnings(source, "30d", "t") == [
        "The window 30d keeps 1 of 1,000 rows: the newest time in 't' is 2099-01-01 (in "
        f"{tmp_path / '1.parquet'}), the newest one before the window {newest_before}. If the newest time is wrong, correct it "
        "or remove its rows from the data."
    ]


def test_nothing_is_said_where_a_window_keeps_many_rows_or_no_gap_is_before_it(tmp_path):
    assert not lone_window_warnings(source_of(tmp_path, hours(500)), "2d", "t")  # 48 rows, an hour after the others
    assert not lone_window_warnings(source_of(tmp_path, hours(500), [FAR] * 100), "30d", "t")  # many
    assert not lone_window_warnings(source_of(tmp_path, hours(20), [START + 40 * HOUR]), "1d", "t")  # nearer than a day
    assert not lone_window_warnings(source_of(tmp_path, [FAR] * 3, hours(3)), "1f", "t")  # of files, not of times
    (tmp_path / "1.parquet").unlink()
    assert not lone_window_warnings(source_of(tmp_path, [FAR] * 3), "30d", "t")  # all rows
