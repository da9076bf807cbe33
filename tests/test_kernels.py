"""Kernels are compiled for few types: else every thread, file and mapped model would wait for the compiler again."""

from __future__ import annotations

import importlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import recipes
from learners.kinds import load_model
from learners.passes.learner import drive
from learners.passes.source import Source
from learners.schema.encode import encode
from learners.schema.records import record_classifier

KERNELS = ("learners.schema.kernels", "learners.counts.kernels", "learners.classifiers.kernels")
# uint8 and uint16 codes; `translate` also reads indices of one, two and four bytes.
MOST_SIGNATURES = 2
MOST_OF_TRANSLATE = 6


def signatures():
    """Number of compiled signatures of every kernel."""
    found = {}
    for module_name in KERNELS:
        for name, member in vars(importlib.import_module(module_name)).items():
            if hasattr(member, "signatures") and member.py_func.__module__ == module_name:
                found[f"{module_name}.{name}"] = len(member.signatures)
    return found


def table_of(n_values):
    rng = np.random.default_rng(n_values)
    y = rng.integers(0, 2, 4000)
    return pa.table(
        {
            "word": pa.array([None if v == 0 else f"w{v}" for v in rng.integers(0, n_values, 4000)]),
            "small": pa.array(((y + rng.integers(0, 3, 4000)) % 4).astype(np.uint8)),
            "number": y + rng.normal(0, 1, 4000),
            "class": pa.array(["u", "v"]).take(pa.array(y)),
        }
    )


def main_paths(folder):
    """Train from a file and from memory, predict in batches and one by one, with fresh and with mapped arrays."""
    for n_values in (5, 900):
        table = table_of(n_values)
        pq.write_table(table, folder / "x.parquet", row_group_size=1000)
        for source in (Source.open(folder / "x.parquet"), Source.of_table(table)):
            for name in ("nb", "tan", "kdb"):
                model = drive(recipes.learner(name, {}, "class"), source, threads=2)
                header, arrays = model.to_arrays()
                mapped = {}
                for key, array in arrays.items():
                    mapped[key] = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
                    assert not mapped[key].flags.writeable
                for one in (model, load_model(header, mapped)):
                    chunk = encode(table, one.schema)
                    one.predict_proba(chunk)
                    one.predict_proba(chunk.rows(slice(0, 7)))
                    record_classifier(one)(table.slice(0, 1).to_pylist()[0])


@pytest.fixture
def after_the_main_paths(tmp_path):
    main_paths(tmp_path)
    return tmp_path


def test_kernels_have_few_signatures(after_the_main_paths):
    for name, n in signatures().items():
        allowed = MOST_OF_TRANSLATE if name.endswith(".translate") else MOST_SIGNATURES
        assert n <= allowed, name


def test_chunks_and_mapped_models_compile_nothing_again(after_the_main_paths):
    before = signatures()
    assert before["learners.classifiers.kernels.probabilities"] >= 1
    main_paths(after_the_main_paths)
    assert signatures() == before
