"""Hostile inputs: files for jobs and data sets, and models to import, from a seed."""

import random
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service import product
from storage.models.model_file import read_model_file, write_model
from tests.classifiers.baselines.booster_mutants import change
from tests.passes.hostile import MB, REPEATING, long_texts, written
from tests.service.asking import learn
from tests.support.product import parts_of, rebuilt

ENCODINGS = {
    "PLAIN": ("number", "fraction", "text", "truth"),
    "RLE_DICTIONARY": (),
    "DELTA_BINARY_PACKED": ("number",),
    "DELTA_LENGTH_BYTE_ARRAY": ("text",),
    "DELTA_BYTE_ARRAY": ("text",),
    "BYTE_STREAM_SPLIT": ("fraction", "number"),
    "RLE": ("truth",),
}
COMPRESSIONS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
N_ROWS = 2_000
ENDLESS = 1 << 40  # bytes of a file without blocks on the disk, and what a row of it counts


@dataclass(frozen=True)
class Hostile:
    """One input: a file, and how it is sent."""

    kind: str
    path: Path
    columns: dict | None = None  # of a job; a model to import otherwise
    is_model: bool = False


def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "number": rng.integers(0, 50, N_ROWS),
            "fraction": rng.normal(size=N_ROWS),
            "text": [f"w{i % 7}" for i in range(N_ROWS)],
            "truth": rng.random(N_ROWS) < 0.5,
            "class": ["a" if i % 3 else "b" for i in range(N_ROWS)],
        }
    )


def parquet(path, encoding, compression):
    """A sound file of which some columns have an encoding."""
    how: dict[str, object] = {"compression": compression, "row_group_size": N_ROWS // 4, "data_page_version": "2.0"}
    if encoding == "RLE_DICTIONARY":
        how |= {"use_dictionary": True}
    else:
        how |= {"use_dictionary": False, "column_encoding": dict.fromkeys(ENCODINGS[encoding], encoding)}
    pq.write_table(table(), path, **how)
    return path.read_bytes()


def damaged(whole, rng):
    """Bytes changed in the pages or in the footer, a stretch of zeros or of ones, or the end cut off with a footer that stays."""
    content, footer = bytearray(whole), len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    how = rng.choice(["pages", "pages", "footer", "footer", "zeros", "ones", "cut"])
    if how == "cut":
        return bytes(content[: rng.randrange(4, footer)] + content[footer:])
    low, high = (footer, len(whole) - 8) if how == "footer" else (4, footer)
    if how in ("zeros", "ones"):
        begin, n = rng.randrange(low, high), rng.randrange(1, 200)
        content[begin : min(begin + n, high)] = (b"\0" if how == "zeros" else b"\xff") * min(n, high - begin)
        return bytes(content)
    for _ in range(rng.choice([1, 1, 3])):
        content[rng.randrange(low, high)] ^= rng.randrange(1, 256)
    return bytes(content)


def damaged_files(folder, rng):
    """Endless: every encoding in turn."""
    for number, encoding in enumerate(cycle(ENCODINGS)):
        path = folder / f"damaged-{number}.parquet"
        whole = parquet(path, encoding, rng.choice(COMPRESSIONS))
        path.write_bytes(damaged(whole, rng))
        yield Hostile(f"damaged {encoding}", path, {})


def bombs(folder, rng):
    """Endless: small files that unpack to much."""
    kinds = {"csv": {}, "one page": {"use_dictionary": False, "data_page_size": 600 * MB}, "text": REPEATING}
    for number, kind in enumerate(cycle(kinds)):
        path = folder / f"bomb-{number}.{'csv.zst' if kind == 'csv' else 'parquet'}"
        if kind == "csv":
            frame = pa.compress(b"x,class\n" + b"1,a\n2,b\n" * (12 * MB), "zstd", asbytes=True)
            path.write_bytes(frame * 100)  # ten gigabytes of rows
        else:
            written(path, long_texts(rng.choice([200, 300, 400]), MB), **kinds[kind])
        yield Hostile(f"bomb of {kind}", path, {})


def endless_csv(folder, rng):
    """Endless: lines, texts, headers and files without an end."""
    for number, kind in enumerate(cycle(("zeros", "quote", "line", "header", "columns"))):
        path = folder / f"endless-{number}.csv"
        with path.open("wb") as file:
            if kind == "header":
                file.write(b"a," * (8 * MB))
            elif kind == "columns":
                file.write(b",".join(b"c%d" % i for i in range(200_000)) + b",class\n" + b"1," * 200_000 + b"a\n")
            else:
                file.write(b"x,class\n1,a\n2,b\n")
            if kind == "quote":
                file.write(b'"' + b"1,a\n" * (rng.choice([8, 16]) * MB))
            elif kind == "line":
                file.write(b"1" * (64 * MB))
            elif kind == "zeros":
                file.truncate(ENDLESS)
        yield Hostile(f"endless csv: {kind}", path, {})


def weights(folder, rng):
    """Endless: rows that count 2^40 times and more."""
    for number in count():
        path = folder / f"weights-{number}.parquet"
        n_times = rng.choice([ENDLESS, 2**63 - 1, -1, float("nan")])
        pq.write_table(table().append_column("n", pa.array([n_times] * N_ROWS)), path)
        yield Hostile("weights", path, {"n": {"weight": True}})


def models(folder, rng, workspace):
    """Endless: exports with a changed booster or other arrays, whose checksums are right; each third is a damaged file."""
    source = folder / "models.parquet"
    pq.write_table(table(), source)
    learn(workspace, source, "trees", learner="xgboost", parameters={"rounds": 3}, holdout=0)
    product.write_export(workspace, "trees", folder / "trees.tar")
    whole = (folder / "trees.tar").read_bytes()
    manifest, _ = parts_of(folder / "trees.tar")
    header, arrays = read_model_file(product.find_version(workspace, "trees").duckdb_path)
    for number in count():
        path, is_damaged = folder / f"mutant-{number}.tar", number % 3 == 2
        if is_damaged:
            content = bytearray(whole)
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            path.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        else:
            mutant = arrays | {"booster": change(arrays["booster"], rng)}
            files = write_model(folder / f"mutant-{number}", "made-up", 1, header, mutant, {})
            path.write_bytes(rebuilt(manifest | {"sha256": files.sha256}, files.duckdb_path.read_bytes()))
        yield Hostile("damaged export" if is_damaged else "XGBoost mutant", path, is_model=True)


def hostile_inputs(folder, workspace, n, seed):
    """So many inputs; of ten, five are damaged Parquet, and each other kind is among them."""
    rng = random.Random(seed)
    damaged, csv, exports = damaged_files(folder, rng), endless_csv(folder, rng), models(folder, rng, workspace)
    packed, counted = bombs(folder, rng), weights(folder, rng)
    order = [damaged, csv, exports, damaged, packed, damaged, counted, damaged, damaged, csv]
    return [next(order[i % len(order)]) for i in range(n)]
