"""Windows in time that keep few rows, far after all others."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source
from learners.errors import EmptyData
from learners.passes.sources.row_filter import lone_window_warnings, newest_time, select_newest_rows
from learners.passes.sources.source import Condition

START, HOUR = datetime.datetime(2026, 1, 1), datetime.timedelta(hours=1)
FAR = datetime.datetime(2099, 1, 1)


class NotFar(Condition):
    text, columns = "not far", ("t",)

    def mask(self, rows, file, fragment, offset):
        return np.array([time is None or time < FAR for time in rows.column("t").to_pylist()])


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


def test_rows_that_do_not_count_are_never_the_newest(tmp_path):
    source = source_of(tmp_path, hours(500), [*hours(3, 500), None, FAR], [FAR] * 2)
    asked: list[int] = []

    def counting(index):
        asked.append(index)
        return [NotFar()] if index else ()

    assert newest_time(source, "t") == FAR
    assert newest_time(source, "t", counting) == START + 502 * HOUR
    assert asked == [1, 2], "a file whose newest row is older than one that counts is not asked for"
    kept = select_newest_rows(source, "2h", "t", counting)
    assert {index: [own.text for own in conditions] for index, conditions in kept.wanted.items()} == {
        1: ["t > 2026-01-21T20:00:00"],
        2: [],
    }
    assert not lone_window_warnings(source, "40d", "t", counting)
    (tmp_path / "far").mkdir()
    with pytest.raises(EmptyData, match="Every row with a time in column 't' is forgotten"):
        select_newest_rows(source_of(tmp_path / "far", [FAR] * 2), "30d", "t", counting=lambda index: [NotFar()])
