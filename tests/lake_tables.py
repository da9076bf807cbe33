"""Lake tables: histories of what can happen to one, and logs written by hand, with what delta-rs reads and does not write."""

import json
import struct
import uuid
import zlib
from base64 import b85encode
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.typedef import Record
from pyiceberg.types import StringType
from pyroaring import BitMap

from learners.passes.learner import Part, drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema import Kept

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
TYPES = {pa.int64(): "long", pa.string(): "string", pa.date32(): "date"}


class WrittenTable:
    """A Delta Lake table below `root` with a pyarrow `schema`, whose columns are col-0, col-1, … in its files.

    `partition` names the column that only the log has, if there is one, and `features` what the table asks of its readers.
    """

    def __init__(self, root, schema, partition=None, features=("columnMapping", "deletionVectors")):
        self.root, self.schema, self.partition, self.version = root, schema, partition, -1
        self.adds: dict[str, dict] = {}
        (root / "_delta_log").mkdir(parents=True)
        self.physical = {name: f"col-{i}" for i, name in enumerate(schema.names)}
        mapping = "delta.columnMapping"
        fields = []
        for i, one in enumerate(schema):
            names = {f"{mapping}.id": i + 1, f"{mapping}.physicalName": self.physical[one.name]}
            fields.append({"name": one.name, "type": TYPES[one.type], "nullable": True, "metadata": names})
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [] if partition is None else [partition],
            "configuration": {f"{mapping}.mode": "name", f"{mapping}.maxColumnId": "99"},
            "createdTime": 1,
        }
        protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
        self.commit({"protocol": protocol}, {"metaData": metadata})

    def commit(self, *actions):
        self.version += 1
        lines = "\n".join(map(json.dumps, actions))
        (self.root / "_delta_log" / f"{self.version:020}.json").write_text(lines)

    def append(self, name, rows, value=None):
        """Add a file, whose name the log percent-encodes."""
        own = rows.rename_columns([self.physical[column] for column in rows.column_names])
        pq.write_table(own, self.root / name, row_group_size=64)
        self.adds[name] = {
            "path": name.replace("%", "%25"),
            "partitionValues": {} if self.partition is None else {self.physical[self.partition]: value},
            "size": (self.root / name).stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
        self.commit({"add": self.adds[name]})

    def delete(self, name, positions):
        """Mark rows of a file as deleted; those that were marked before count no longer if they are not among these."""
        words = BitMap(positions).serialize()
        blob = struct.pack("<IQI", 1681511377, 1, 0) + words
        place = uuid.uuid4()
        content = b"\x01" + struct.pack(">I", len(blob)) + blob + struct.pack(">I", zlib.crc32(blob))
        (self.root / f"deletion_vector_{place}.bin").write_bytes(content)
        vector = {
            "storageType": "u",
            "pathOrInlineDv": b85encode(place.bytes).decode().translate(str.maketrans(B85, Z85)),
            "offset": 1,
            "sizeInBytes": len(blob),
            "cardinality": len(positions),
        }
        old = self.adds[name]
        removal = {key: old[key] for key in ("path", "partitionValues", "size", "deletionVector") if key in old}
        self.adds[name] = old | {"deletionVector": vector}
        self.commit({"remove": removal | {"deletionTimestamp": 1, "dataChange": True}}, {"add": self.adds[name]})


VALUES = np.array(["a", "b", "c", "d", "e", "f", "g", "h"])


def people(rng, n, more=()):
    """Nominal rows; values of a batch are not those of all others."""
    y = rng.integers(0, 2, n)
    few = rng.choice(VALUES, 3, replace=False)
    columns = {"person": rng.integers(0, 12, n), "region": rng.choice(few[:2], n)}
    columns |= {name: few[(y + rng.integers(0, 2, n)) % 3] for name in ("a", "b", *more)}
    return pa.table(columns | {"class": np.array(["no", "yes"])[y]})


class DeltaHistory:
    """A Delta Lake table and what can happen to it."""

    def __init__(self, path, rng):
        self.path, self.rng, self.more = str(path), rng, ()
        write_deltalake(path, people(rng, 60), partition_by=["region"] if rng.random() < 0.5 else None)

    @property
    def table(self):
        return DeltaTable(self.path)

    def append(self):
        write_deltalake(self.path, people(self.rng, 40, self.more), mode="append")

    def overwrite(self):
        write_deltalake(self.path, people(self.rng, 70, self.more), mode="overwrite")

    def delete(self):
        self.table.delete(f"person = {self.rng.integers(0, 12)}")

    def merge(self):
        rows = people(self.rng, 12, self.more).set_column(0, "person", pa.array(np.arange(12)))
        merging = self.table.merge(rows, "t.person = s.person AND t.a = s.b", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def compact(self):
        self.table.optimize.compact()

    def vacuum(self):
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def grow(self):
        self.more = (*self.more, f"more{len(self.more)}")
        rows = people(self.rng, 30, self.more)
        write_deltalake(self.path, rows, mode="append", schema_mode="merge")

    def rows(self):
        return pa.table(QueryBuilder().register("t", self.table).execute("SELECT * FROM t"))


class IcebergHistory:
    """The same of an Iceberg table."""

    def __init__(self, path, rng):
        self.rng, self.more = rng, ()
        self.catalog = InMemoryCatalog("tests", warehouse=f"file://{path}")
        self.catalog.create_namespace("lake")
        rows = people(rng, 60)
        self.table = self.catalog.create_table("lake.people", schema=rows.schema)
        if rng.random() < 0.5:
            with self.table.update_spec() as spec:
                spec.add_identity("region")
        self.table.append(rows)
        self.path = self.table.location().removeprefix("file://")

    def append(self):
        self.table.append(people(self.rng, 40, self.more))

    def overwrite(self):
        self.table.overwrite(people(self.rng, 70, self.more))

    def delete(self):
        self.table.delete(f"person == {self.rng.integers(0, 12)}")

    def merge(self):
        rows = people(self.rng, 12, self.more).set_column(0, "person", pa.array(np.arange(12)))
        left = [row for row in self.rows().to_pylist() if row["person"] > 11 or row["a"] != row["b"]]
        self.table.overwrite(pa.Table.from_pylist([*left, *rows.to_pylist()], schema=self.table.schema().as_arrow()))

    def compact(self):
        self.table.overwrite(self.rows())

    def vacuum(self):
        kept = {task.file.file_path.removeprefix("file://") for task in self.table.scan().plan_files()}
        for path in Path(self.path, "data").rglob("*.parquet"):
            if str(path) not in kept:
                path.unlink()

    def grow(self):
        self.more = (*self.more, f"more{len(self.more)}")
        with self.table.update_schema() as schema:
            schema.add_column(self.more[-1], StringType())
        self.append()

    def rows(self):
        return self.table.scan().to_arrow()


def anew(rows, folder, kept=None, learner=("nb", {})):
    """What training learns from a plain file of the rows: no log and no statistic has a part in it."""
    columns = [column.cast(pa.string()) if is_text(column.type) else column for column in rows.columns]
    pq.write_table(pa.table(columns, rows.column_names), folder / "rows.parquet")
    asked = recipes.learner(*learner, "class", None if kept is None else Kept(kept), {"person": "nominal"})
    return drive(asked, [Part(Source.open(folder / "rows.parquet"))], threads=1)


def is_text(kind):
    return pa.types.is_string_view(kind) or pa.types.is_large_string(kind)


class Deletes(ManifestWriterV2):
    """A manifest of files with deletes."""

    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def delete_by_file(table, path, content, rows):
    """Give an unpartitioned Iceberg table a snapshot with a file of deletes, which pyiceberg reads and does not write.

    `path` is below the table's folder. The rows are (file_path, pos) for POSITION_DELETES, values for EQUALITY_DELETES.
    """
    pq.write_table(rows, path)
    parent = table.current_snapshot()
    number, sequence = parent.snapshot_id + 1, table.metadata.last_sequence_number + 1
    file = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(path).stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = 0
    folder = f"{table.location()}/metadata"
    deletes = table.io.new_output(f"{folder}/d{number}.avro")
    with Deletes(table.spec(), table.schema(), deletes, number, "null") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file))
    listing = f"{folder}/list{number}.avro"
    output = table.io.new_output(listing)
    with write_manifest_list(2, output, number, parent.snapshot_id, sequence, "null") as manifests:
        manifests.add_manifests([*parent.manifests(table.io), writer.to_manifest_file()])
    told = json.loads(table.metadata.model_dump_json())
    told["snapshots"].append(
        json.loads(parent.model_dump_json())
        | {"snapshot-id": number, "parent-snapshot-id": parent.snapshot_id, "sequence-number": sequence}
        | {"manifest-list": listing, "timestamp-ms": parent.timestamp_ms + 1}
    )
    told |= {"current-snapshot-id": number, "last-sequence-number": sequence}
    told["refs"]["main"]["snapshot-id"] = number
    Path(folder.removeprefix("file://"), f"99999-{number}.metadata.json").write_text(json.dumps(told))
