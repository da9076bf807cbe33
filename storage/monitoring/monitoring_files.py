"""Monitoring files: hourly counts of served rows, predictions waiting for labels, and labels.

``monitoring/<model>/<version>/<hour>-<process>-<part>.parquet`` holds the counts of one hour and process, in several parts
where it mapped the version several times. A process replaces its own file each minute until the hour is over; no
other process writes it, so counts are added without a lock. Predictions and labels are immutable files of rows.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.errors import CorruptFile
from storage.files.atomic_files import (
    exclusive_file_lock,
    is_file_locked,
    read_or_create_secret,
    visible_files_below,
    write_file_atomically,
)
from storage.files.workspace_layout import checked_resource_name

HOUR = timedelta(hours=1)
NOTED = timedelta(days=1)  # how long forgotten keys are noted: longer than a process may hold what it has yet to write
FORM = "%Y%m%dT%H"
DAY = "%Y%m%d"
META = b"fewpass"
DAY_PROCESS = "day"
SECRET_BYTES = 32


class MonitorChoice(TypedDict, total=False):
    """Monitoring choice of one model; omitted members follow the settings.

    The mode is "off", "counts" or "rows"; values of `denied` columns are not counted.
    """

    mode: str
    denied: list[str]


@dataclass(frozen=True)
class SliceFile:
    """File of counts for the hours from `start` to `end`, timezone-aware UTC."""

    path: Path
    start: datetime
    end: datetime
    process: str  # who has written it; "day" of what was compacted
    layout: str  # what the counts mean
    covered_until: datetime  # aware, UTC; rows after it, by the same process in the same hour, are not in it
    is_closed: bool  # whether the process has come to the end of the hour, or ended as it should
    holds: tuple[str, ...] = ()  # files that were added up here; where they are still there, they count no more

    def counts(self) -> pa.Table:
        """Read cells and counts; CorruptFile if the file is damaged."""
        return _read(self.path)


class MonitoringFiles:
    """Monitoring files of one model, below the root of the workspace."""

    def __init__(self, root: Path, model: str) -> None:
        self.folder = Path(root) / "monitoring" / checked_resource_name("model", model)

    def write_slice(
        self,
        version: int,
        start: datetime,
        process: str,
        counts: pa.Table,
        layout: str,
        *,
        covered_until: datetime,
        is_closed: bool,
        end: datetime | None = None,
        holds: Sequence[str] = (),
        part: int = 0,
    ) -> Path:
        """Publish the counts of an hour, replacing those that this process wrote for the same hour and part."""
        path = self._slice_path(version, start, process, part, FORM if end is None else DAY)
        header = {
            "start": start.isoformat(),
            "end": (end or start + HOUR).isoformat(),
            "process": process,
            "layout": layout,
            "covered_until": covered_until.isoformat(),
            "is_closed": is_closed,
            "holds": list(holds),
        }
        _write(path, counts, header)
        return path

    def slice_of(self, version: int, start: datetime, process: str, part: int) -> pa.Table | None:
        """Return the counts that a process wrote for an hour and part; None if they are gone."""
        path = self._slice_path(version, start, process, part, FORM)
        return _read(path) if path.exists() else None

    def _slice_path(self, version: int, start: datetime, process: str, part: int, form: str) -> Path:
        return self._version(version) / f"{start.astimezone(UTC):{form}}-{process}-{part}.parquet"

    def slices(
        self, version: int, since: datetime | None = None, until: datetime | None = None
    ) -> tuple[SliceFile, ...]:
        """Return the count files of a version that begin within a period, oldest first."""
        files = []
        for path in self._parquets(self._version(version)):
            with suppress(FileNotFoundError):  # compacted meanwhile
                header = _header(path)
                start, end = (datetime.fromisoformat(header[name]) for name in ("start", "end"))
                if until is None or start < until:
                    covered, process = datetime.fromisoformat(header["covered_until"]), header["process"]
                    closed, holds = header["is_closed"], tuple(header.get("holds", ()))
                    files.append(SliceFile(path, start, end, process, header["layout"], covered, closed, holds))
        held = {name for one in files for name in one.holds}
        own = [one for one in files if one.path.name not in held and (since is None or one.start >= since)]
        return tuple(sorted(own, key=lambda one: (one.start, one.process)))

    def choice(self) -> MonitorChoice:
        """Return the monitoring choice of the model, empty if none was made; CorruptFile if the file is damaged."""
        path = self.folder / "monitor.json"
        try:
            return cast("MonitorChoice", json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError as error:
            raise CorruptFile(path, f"it is not JSON ({error}). Remove it, or set the policy again.") from error

    def decide(self, choice: MonitorChoice) -> None:
        """Store the monitoring choice of the model."""
        with write_file_atomically(self.folder / "monitor.json", replace=True) as draft:
            draft.write_text(json.dumps(choice), encoding="utf-8")

    def versions(self) -> tuple[int, ...]:
        """Return the versions with counts."""
        names = [entry.name for entry in self.folder.iterdir()] if self.folder.is_dir() else []
        return tuple(sorted(int(name) for name in names if name.isdecimal()))

    def write_rows(self, version: int, kind: str, name: str, rows: pa.Table) -> Path:
        """Publish rows, such as predictions, under a unique name."""
        path = self._version(version) / kind / f"{name}.parquet"
        _write(path, rows, {"rows": rows.num_rows})
        return path

    def rows(self, version: int, kind: str, columns: list[str] | None = None) -> Iterator[tuple[Path, pa.Table]]:
        """Yield the files of rows of a kind, by name."""
        for path in self._parquets(self._version(version) / kind):
            with suppress(FileNotFoundError):
                yield path, _read(path, columns)

    def write_labels(self, labels: pa.Table) -> Path:
        """Publish labels; the later of two labels with the same key counts."""
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        path = self.folder / "labels" / f"{name}.parquet"
        _write(path, labels, {"rows": labels.num_rows})
        return path

    def labels(self) -> Iterator[pa.Table]:
        """Yield all labels in order of arrival."""
        for path in self._parquets(self.folder / "labels"):
            with suppress(FileNotFoundError):
                yield _read(path)

    def forget_labels(self, keys: pa.Array) -> int:
        """Remove the labels of some keys; return how many predictions had one, counting repeated labels once."""
        gone: set[bytes] = set()
        for path in self._parquets(self.folder / "labels"):
            with suppress(FileNotFoundError):
                table = _read(path)
                is_gone = pc.is_in(table["key"], value_set=keys)
                left = table.filter(pc.invert(is_gone))
                if left.num_rows < table.num_rows:
                    gone.update(table["key"].filter(is_gone).to_pylist())
                    self.replace_rows(path, left)
        return len(gone)

    @contextmanager
    def changing_predictions(self) -> Iterator[None]:
        """Lock predictions against concurrent writing and forgetting, so that none is written after the search for it."""
        with exclusive_file_lock(self.folder / "predictions"):
            yield

    def note_forgotten(self, keys: pa.Array, until: datetime) -> None:
        """Store keys whose predictions up to a moment must not be written, since processes may still hold some."""
        path = self.folder / "forgotten" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}.parquet"
        _write(path, pa.table({"key": keys}), {"until": until.isoformat()})

    def forgotten(self) -> dict[bytes, datetime]:
        """Return the forgotten keys, each with the moment up to which its predictions must not be written."""
        noted: dict[bytes, datetime] = {}
        for path in self._parquets(self.folder / "forgotten"):
            with suppress(FileNotFoundError):
                until = datetime.fromisoformat(_header(path)["until"])
                for key in _read(path)["key"].to_pylist():
                    noted[key] = max(until, noted.get(key, until))
        return noted

    def replace_rows(self, path: Path, rows: pa.Table) -> None:
        """Replace the rows of a file; an empty table removes it."""
        if rows.num_rows:
            _write(path, rows, {"rows": rows.num_rows})
        else:
            path.unlink(missing_ok=True)

    def remove(self, version: int | None = None) -> None:
        """Remove the counts of a version, or of all versions with the labels."""
        shutil.rmtree(self.folder if version is None else self._version(version), ignore_errors=True)

    def remove_before(self, counts: datetime, rows: datetime) -> int:
        """Remove count files that ended before one moment, and rows and labels written before another; return the
        number of files removed.
        """
        gone = 0
        for version in self.versions():
            for one in self.slices(version):
                if one.end <= counts:
                    one.path.unlink(missing_ok=True)
                    gone += 1
            gone += _remove_old(self._parquets(self._version(version) / "predictions"), rows)
        gone += _remove_old(self._parquets(self.folder / "forgotten"), datetime.now(UTC) - NOTED)
        return gone + _remove_old(self._parquets(self.folder / "labels"), rows)

    def _version(self, version: int) -> Path:
        return self.folder / str(int(version))

    @staticmethod
    def _parquets(folder: Path) -> tuple[Path, ...]:
        if not folder.is_dir():
            return ()
        return tuple(
            path for path in visible_files_below(folder) if path.suffix == ".parquet" and path.parent == folder
        )


def compact_hourly_counts(files: MonitoringFiles, before: datetime) -> int:
    """Merge the hours of each day that ended before a moment into one file per layout; return the number of files
    removed.

    A day that has its file already keeps its later hours beside it: sums do not care. Killed in between, a day would be
    counted twice, so its file names the hours that are in it, and the next reader removes them.
    """
    gone = 0
    for version in files.versions():
        slices = files.slices(version, until=before)
        for whole_day in (one for one in slices if one.process.startswith(DAY_PROCESS)):
            gone += _remove_held(files.folder / str(version) / whole_day.path.name, list(whole_day.holds))
        days: dict[tuple[str, str], list[SliceFile]] = {}
        for one in files.slices(version, until=before):
            is_done = one.is_closed or not is_counting_process_alive(files.folder.parents[1], one.process)
            if one.end - one.start <= HOUR and one.end <= before and is_done:
                days.setdefault((f"{one.start:{DAY}}", one.layout), []).append(one)
        for (day, layout), hours in sorted(days.items()):
            if len(hours) > 1:
                start = datetime.strptime(day, DAY).replace(tzinfo=UTC)
                names = sorted(one.path.name for one in hours)
                whole = pa.concat_tables([one.counts() for one in hours]).group_by("cell").aggregate([("count", "sum")])
                path = files.write_slice(
                    version,
                    start,
                    f"{DAY_PROCESS}-{secrets.token_hex(4)}",
                    whole.rename_columns(["cell", "count"]).sort_by("cell"),
                    layout,
                    covered_until=start + timedelta(days=1),
                    is_closed=True,
                    end=start + timedelta(days=1),
                    holds=names,
                )
                gone += _remove_held(path, names)
    return gone


def _remove_held(path: Path, names: list[str]) -> int:
    gone = 0
    for name in names:
        with suppress(FileNotFoundError):
            (path.parent / name).unlink()
            gone += 1
    return gone


def monitored_models(root: Path) -> tuple[str, ...]:
    """Return the models with counts."""
    folder = Path(root) / "monitoring"
    entries = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))


def workspace_secret(root: Path) -> bytes:
    """Return the workspace's secret, created on first use; client keys are stored only as hashes keyed with it."""
    path = Path(root) / "monitoring" / "secret"
    return read_or_create_secret(path, partial(secrets.token_bytes, SECRET_BYTES))


class Alive:
    """Shows other processes that this one is alive; the kernel removes the sign however the process ends."""

    def __init__(self, root: Path, process: str) -> None:
        path = _sign(root, process)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._file = path, path.open("a")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the sign after an orderly end."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def is_counting_process_alive(root: Path, process: str) -> bool:
    """Return whether a counting process is still alive."""
    return is_file_locked(_sign(root, process))


def _sign(root: Path, process: str) -> Path:
    return Path(root) / "monitoring" / ".processes" / f"{process}.lock"


def _remove_old(paths: tuple[Path, ...], before: datetime) -> int:
    gone = 0
    for path in paths:
        with suppress(FileNotFoundError):
            if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                path.unlink()
                gone += 1
    return gone


def _write(path: Path, table: pa.Table, header: Mapping[str, object]) -> None:
    table = table.replace_schema_metadata({META: json.dumps(header).encode()})
    with write_file_atomically(path, replace=True) as draft:
        pq.write_table(table, draft, compression="zstd")


def _read(path: Path, columns: list[str] | None = None) -> pa.Table:
    with _ours(path):
        return pq.read_table(path, columns=columns, partitioning=None)


def _header(path: Path) -> Mapping[str, Any]:
    with _ours(path):
        header: Mapping[str, Any] = json.loads((pq.read_schema(path).metadata or {})[META])
        return header


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptFile(
            path, f"it is not a monitoring file ({error}). Remove it; the counts of its hour are lost."
        ) from error
