"""Every flipped bit of a file with a sum is noticed; files of earlier releases are read."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.datasets.forgotten import Forgotten
from storage.datasets.statistics import StatisticStore
from storage.errors import CorruptFile
from storage.files.atomic_files import json_with_checksum, parse_checked_json
from storage.models import compiled
from storage.models.compiled import map_compiled, write_compiled

KEY = "0" * 64
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "xxh3_128"), ANYTHING))
def test_a_document_comes_back(document):
    assert parse_checked_json(Path("x"), json_with_checksum(document)) == document
    assert parse_checked_json(Path("x"), json.dumps(document)) == document, "without a sum, of an earlier release"


@given(st.data())
def test_a_flipped_bit_of_a_document_is_no_other_document(data):
    document = {"rules": [{"where": "user_id = 7", "rows": {"a": 1, "b": 20}}], "b": [1.5, None, True]}
    text = bytearray(json_with_checksum(document).encode())
    bit = data.draw(st.integers(0, 8 * len(text) - 1))
    text[bit // 8] ^= 1 << bit % 8
    try:
        read = parse_checked_json(Path("x"), bytes(text))
    except (CorruptFile, ValueError, TypeError):
        return
    assert {name: read.get(name) for name in document} == document, "of the sum itself, or white space"


@pytest.mark.parametrize("piece", [1000, 4096, 10_000])
def test_the_sum_of_a_file_does_not_depend_on_how_it_is_read(piece, tmp_path, monkeypatch):
    arrays = {"a": np.arange(3000.0)}
    write_compiled(tmp_path / "whole.arrow", {"kind": "x"}, arrays)
    monkeypatch.setattr(compiled, "_PIECE", piece)
    write_compiled(tmp_path / "pieces.arrow", {"kind": "x"}, arrays)
    assert (tmp_path / "pieces.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()
    _, read = map_compiled(tmp_path / "pieces.arrow")
    assert read["a"].tolist() == arrays["a"].tolist()


def test_a_flipped_bit_anywhere_in_a_served_file_is_noticed(tmp_path):
    arrays = {"a": np.arange(20.0), "b": np.array([True, False]), "c": np.arange(5, dtype=np.uint8), "d": np.empty(0)}
    write_compiled(tmp_path / "good.arrow", {"kind": "x"}, arrays)
    good = (tmp_path / "good.arrow").read_bytes()
    path, bits = tmp_path / "spoiled.arrow", np.random.default_rng(0).integers(8, size=len(good)).tolist()
    for position, bit in enumerate(bits):
        spoiled = bytearray(good)
        spoiled[position] ^= 1 << bit
        path.write_bytes(spoiled)
        with pytest.raises(CorruptFile, match=r"spoiled\.arrow is damaged"):
            map_compiled(path)


def test_a_served_file_of_an_earlier_release_is_mapped(tmp_path):
    write_compiled(tmp_path / "new.arrow", {"kind": "x"}, {"a": np.arange(3.0)})
    with pa.OSFile(str(tmp_path / "new.arrow")) as file, pa.ipc.open_file(file) as reader:
        batch = reader.get_batch(0)
    metadata = {name: value for name, value in batch.schema.metadata.items() if name != b"fewpass.xxh3"}
    # Releases until 0.2.0 wrote the JSON as text.
    text = pa.Codec("zstd").decompress(metadata[b"fewpass.json"], int(metadata[b"fewpass.json_bytes"]), asbytes=True)
    for name, more in (("old", {b"fewpass.format": b"fewpass:1", b"fewpass.json": text}), ("unsealed", {})):
        rows = batch.replace_schema_metadata(metadata | more)
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_batch(rows)
    assert map_compiled(tmp_path / "old.arrow")[1]["a"].tolist() == [0, 1, 2]
    with pytest.raises(CorruptFile, match=r"unsealed\.arrow is damaged"):
        map_compiled(tmp_path / "unsealed.arrow")


def test_the_header_of_a_file_is_compressed(tmp_path):
    header = {"names": [f"attribute {number}" for number in range(10_000)]}
    write_compiled(tmp_path / "model.arrow", header, {"a": np.arange(3.0)})
    assert (tmp_path / "model.arrow").stat().st_size < len(json.dumps(header)) / 4
    assert map_compiled(tmp_path / "model.arrow")[0] == header


def test_a_rule_with_a_flipped_bit_is_damage(tmp_path):
    path = tmp_path / "forgotten.json"
    forgotten = Forgotten(path)
    forgotten.add("user_id = 7")
    forgotten.save()
    path.chmod(0o644)
    path.write_text(path.read_text().replace("user_id = 7", "user_id = 5"))
    with pytest.raises(CorruptFile, match=r"its content has changed since it was written. Restore it from a backup"):
        Forgotten(path)


@pytest.mark.parametrize("place", [0, 20, 80, 200, -3])
def test_a_statistic_whose_description_is_damaged_is_counted_again(tmp_path, place):
    schema = json.dumps({"a": "b" * 99})
    StatisticStore(tmp_path).put(KEY, pa.table({"n": [1]}), {"statistic": "x"}, schema=schema, files=["f"])
    (path,) = tmp_path.glob("*.json")
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.chmod(0o644)
    path.write_bytes(content)
    store = StatisticStore(tmp_path)
    assert store.entries() == ()
    assert store.get(KEY) is None, "both files are gone"
    store.put(KEY, pa.table({"n": [1]}), {"statistic": "x"}, files=["f"])
    assert [entry.key for entry in store.entries()] == [KEY]


def test_small_models_are_compressed_and_large_ones_are_not(tmp_path):
    arrays = {"a": np.arange(5000) // 100, "b": np.array([True, False]), "c": np.empty((0, 3), np.float32)}
    for most_packed in (0, 40_000, 1 << 20):
        path = tmp_path / f"{most_packed}.arrow"
        write_compiled(path, {"kind": "x"}, arrays, most_packed=most_packed)
        assert (path.stat().st_size < 10_000) == (most_packed > 40_000)
        header, read = map_compiled(path)
        assert header == {"kind": "x"} and read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert np.array_equal(read[name], array) and read[name].dtype == array.dtype
            assert read[name].shape == array.shape and not read[name].flags.writeable
        spoiled = bytearray(path.read_bytes())
        spoiled[len(spoiled) // 2] ^= 1
        path.write_bytes(spoiled)
        with pytest.raises(CorruptFile, match=r"\.arrow is damaged"):
            map_compiled(path)
