"""Times of day and durations in the words of their columns, out and in."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, encode
from learners.errors import SchemaError
from learners.models.query import Conditional, Marginal, Sample
from learners.registry import recipes
from learners.schema import Attribute, Schema
from learners.schema.clocks import seconds_of, words_of_clock
from learners.schema.encoding.records import encode_records, number_reader


@pytest.mark.parametrize(
    ("kind", "number", "words"),
    [
        ("duration[s]", 0, "PT0S"),
        ("duration[s]", 300, "PT5M"),
        ("duration[ms]", 1500, "PT1.5S"),
        ("duration[s]", 93_784, "P1DT2H3M4S"),
        ("duration[s]", -172_800, "-P2D"),
        ("duration[us]", 1, "PT0.000001S"),
        ("time32[s]", 45_000, "12:30:00"),
        ("time64[us]", 1, "00:00:00.000001"),
        ("date32[day]", 86_400, "1970-01-02"),
    ],
)
def test_words_are_the_number_again(kind, number, words):
    attribute = Attribute("x", "numeric", cuts=(1.0,), arrow_type=kind)
    assert attribute.number_in_words(float(number)) == words
    assert number_reader(attribute)(words) == number


def test_a_number_that_words_would_change_stays_a_number():
    assert words_of_clock("time", 1, 90_000.0) is None
    assert words_of_clock("time", 10**9, 1.0) is None
    assert words_of_clock("duration", 10**9, 0.5) is None


@pytest.mark.parametrize("text", ["0:05:00", "PT5M", "PT300S", "300"])
def test_durations_are_read_as_people_write_them(text):
    attribute = Attribute("x", "numeric", cuts=(1.0,), arrow_type="duration[s]")
    assert number_reader(attribute)(text) == 300
    assert number_reader(attribute)(datetime.timedelta(minutes=5)) == 300
    assert seconds_of("1 day, 0:00:01") == 86_401


def test_queries_and_answers_carry_the_words():
    rng = np.random.default_rng(0)
    n = 300
    table = pa.table(
        {
            "wait": pa.array(rng.integers(0, 10_000, n) * 1000, pa.duration("ms")),
            "at": pa.array(rng.integers(0, 86_400, n).astype(np.int32), pa.time32("s")),
            "kind": rng.choice(["a", "b"], n),
        }
    )
    parameters = {"structure": "hclt", "states": 2, "passes": 1, "n_bins": 3}
    model = drive(recipes.learner("spn", parameters, None), Source.of_table(table))
    labels = [attribute.labels() for attribute in model.schema.attributes]
    assert all(word.startswith("(PT") for word in labels[0][1:])
    rows, told, by_words, by_number = model.answer(
        [
            Sample(3, seed=1),
            Conditional(("wait",)),
            Marginal({"wait": "PT1H", "at": "12:30:00"}),
            Marginal({"wait": 3_600_000, "at": 45_000}),
        ]
    )
    assert set(told["distributions"]["wait"]) == set(labels[0])
    assert all(row["wait"] in labels[0] for row in rows["rows"])
    assert by_words == by_number


@pytest.mark.parametrize("milliseconds", [1_700_000_000_000, 1_700_000_000_000.0, -1_700_000_000_000])
def test_milliseconds_are_not_taken_for_seconds(milliseconds):
    """A record, columns and a file of numbers, where training had timestamps."""
    schema = Schema((Attribute("when", "numeric", cuts=(1.6e9,), arrow_type="timestamp[ms]"),), "class", ("no", "yes"))
    words = r"Column 'when' holds -?1700000000000 where times are wanted.* Divide milliseconds by 1,000"
    with pytest.raises(SchemaError, match=words):
        encode_records([{"when": milliseconds}], schema)
    with pytest.raises(SchemaError, match=words.replace("-?", "")):
        encode(pa.record_batch({"when": [abs(milliseconds)]}), schema, with_class=False)
    seconds = [{"when": 1_700_000_000}, {"when": 1.5e9}, {"when": "2023-11-14T22:13:20"}, {"when": None}]
    assert encode_records(seconds, schema).x.tolist() == [[1, 0, 1, 2]]
