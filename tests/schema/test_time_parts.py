"""Parts of moments: their intervals against the calendar, and what a schema says of them."""

import datetime

import numpy as np
import pytest

from learners.errors import SchemaError
from learners.schema import Attribute, Schema
from learners.schema.checks import check_schema
from learners.schema.schema_growth import schema_code_maps
from learners.schema.time_parts import CYCLES, MONTHS, WEEKDAYS
from learners.schema.value_choices import attribute_value_choices

NAMES = {
    "time of day": lambda at: f"{at.hour:02}:{at.minute // 10 * 10:02}",
    "hour": lambda at: f"{at.hour:02}:00",
    "weekday": lambda at: WEEKDAYS[at.weekday()],
    "hour of the week": lambda at: f"{WEEKDAYS[at.weekday()]} {at.hour:02}:00",
}


def attribute(part, **more):
    return Attribute("when", "numeric", cuts=CYCLES[part].cuts, arrow_type="timestamp[us]", part=part, **more)


def label(part, seconds):
    own = attribute(part)
    phase = own.cycle.phase(seconds)
    assert own.cycle.phases(np.array([seconds]))[0] == phase
    return own.labels()[int(np.searchsorted(own.cuts, phase, side="left"))]


@pytest.mark.parametrize("part", NAMES)
def test_each_moment_is_in_the_interval_of_its_part(part):
    random = np.random.default_rng(0)
    whole_hours = [3_600.0 * int(hour) for hour in random.integers(-500_000, 800_000, 200)]
    for seconds in [0.0, *whole_hours, *random.integers(-2_000_000_000, 4_000_000_000, 200).astype(float)]:
        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
        assert label(part, seconds) == NAMES[part](at), at


@pytest.mark.parametrize("year", [1970, 2001, 2024, 2100])
def test_the_middle_of_each_month_is_in_it(year):
    for month, name in enumerate(MONTHS, 1):
        at = datetime.datetime(year, month, 15, tzinfo=datetime.UTC)
        assert label("month", at.timestamp()) == name


def test_what_is_no_moment_has_no_phase():
    assert np.isnan(CYCLES["hour"].phase(np.nan)) and np.isnan(CYCLES["hour"].phase(np.inf))
    assert np.isnan(CYCLES["hour"].phases(np.array([np.nan, -np.inf]))).all()


@pytest.mark.parametrize("part", CYCLES)
def test_json_keeps_the_part_and_other_schemas_do_not_change(part):
    schema = Schema((attribute(part, has_missing=True),), "y", ("no", "yes"))
    read = Schema.from_json(schema.to_json())
    assert read == schema and read.fingerprint == schema.fingerprint
    check_schema(read)
    plain = Schema((Attribute("when", "numeric", cuts=CYCLES[part].cuts, arrow_type="timestamp[us]"),), "y", ("a", "b"))
    assert "part" not in plain.to_json()


def test_a_part_that_cannot_be_is_refused():
    for wrong in (
        Attribute("when", "numeric", cuts=(1.0,), arrow_type="timestamp[us]", part="hour"),
        Attribute("when", "numeric", cuts=CYCLES["hour"].cuts, arrow_type="double", part="hour"),
        Attribute("when", "numeric", cuts=CYCLES["hour"].cuts, arrow_type="timestamp[us]", part="minute"),
    ):
        with pytest.raises(SchemaError, match=r"Column 'when' of the schema has the part .*, which it cannot have"):
            check_schema(Schema((wrong,), "y", ("no", "yes")))


def test_counts_by_a_part_are_no_counts_of_the_moments():
    whole = Attribute("when", "numeric", cuts=CYCLES["hour"].cuts, arrow_type="timestamp[us]")
    schemas = [Schema((one,), "y", ("no", "yes")) for one in (whole, attribute("hour"))]
    assert schema_code_maps(*schemas) is None and schema_code_maps(schemas[1], schemas[1]) is not None


@pytest.mark.parametrize("part", CYCLES)
def test_a_value_to_choose_is_a_moment_of_its_label(part):
    for words, value in attribute_value_choices(attribute(part)):
        at = datetime.datetime.fromisoformat(str(value)).replace(tzinfo=datetime.UTC)
        assert label(part, at.timestamp()) == words
