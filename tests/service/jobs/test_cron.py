"""When cron expressions are due, above all on the days when the clocks are changed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.jobs.cron import Cron
from service.requests.problems import InvalidRequest

MINUTES = timedelta(minutes=1)


def times(expression, zone, start, n):
    cron, moment, found = Cron(expression, zone), datetime.fromisoformat(start).astimezone(UTC), []
    for _ in range(n):
        moment = cron.after(moment)
        found.append(f"{moment.astimezone(cron.zone):%d. %H:%M%z}")
    return found


BERLIN, EACH_NIGHT = "Europe/Berlin", "30 2 * * *"
TWICE = "25. 02:00+0200, 25. 02:30+0200, 25. 02:00+0100, 25. 02:30+0100, 25. 03:00+0100, 25. 03:30+0100"


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        # A fixed hour comes once on the day that lacks it, and on the day that has it twice.
        (EACH_NIGHT, BERLIN, "2026-03-28T00:00+01:00", "28. 02:30+0100, 29. 03:30+0200, 30. 02:30+0200"),
        (EACH_NIGHT, BERLIN, "2026-10-24T00:00+02:00", "24. 02:30+0200, 25. 02:30+0200, 26. 02:30+0100"),
        # A star goes by elapsed time.
        ("*/30 * * * *", BERLIN, "2026-10-25T01:30+02:00", TWICE),
        ("0 * * * *", BERLIN, "2026-03-29T01:00+01:00", "29. 03:00+0200, 29. 04:00+0200"),
        # The zone decides which day it is.
        ("0 0 * * mon", "Pacific/Auckland", "2026-06-07T11:59+00:00", "08. 00:00+1200"),
        ("@monthly", "Asia/Kathmandu", "2026-01-31T18:00+00:00", "01. 00:00+0545"),
    ],
)
def test_days_on_which_the_clocks_are_changed(expression, zone, start, expected):
    assert times(expression, zone, start, expected.count(",") + 1) == expected.split(", ")


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
EXPRESSIONS = [EACH_NIGHT, "*/15 * * * *", "0 */6 * * *", "15 1-3 * * *", "0 0 L * *", "0 3 * * mon#1", "7 * * * *"]
EXPRESSIONS = st.sampled_from([*EXPRESSIONS, "0 0 29 2 *"])
CHANGES = [(3, 8), (3, 29), (4, 4), (10, 3), (10, 25), (11, 1)]
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)) | st.builds(
    lambda day, minutes: day + timedelta(minutes=minutes),
    st.sampled_from([datetime(2026, month, day, tzinfo=UTC) for month, day in CHANGES]),
    st.integers(-300, 1500),
)


@given(EXPRESSIONS, ZONES, MOMENTS, st.integers(1, 100_000))
def test_looking_back_finds_what_looking_ahead_has_found(expression, zone, moment, step):
    cron = Cron(expression, zone)
    due = cron.after(moment)
    assert due > moment and cron.latest(due) == due
    between = due + timedelta(seconds=step) * 0.5
    latest = cron.latest(between)
    assert due <= latest <= between < cron.after(latest)
    assert cron.latest(due - timedelta(seconds=1)) <= moment


@given(EXPRESSIONS, ZONES, MOMENTS)
def test_the_next_time_is_what_the_clock_on_the_wall_says(expression, zone, moment):
    """A naive twin: walk minute by minute, and look whether the clock shows a time of the expression."""
    from croniter import croniter

    cron = Cron(expression, zone)
    due = cron.after(moment)
    walking, shown = moment.replace(second=0, microsecond=0), set()
    for _ in range(min(int((due - moment) / MINUTES), 400)):
        walking += MINUTES
        reading = walking.astimezone(cron.zone).replace(tzinfo=None)
        if moment < walking < due and croniter.match(cron.fields, reading):
            shown.add((reading, walking))
    repeated = {reading for reading, walking in shown if walking.astimezone(cron.zone).fold}
    if expression.split()[1].startswith("*"):
        assert not shown
    else:
        assert {reading for reading, _ in shown} <= repeated  # the second of two equal hours does not count


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("* * * *", "UTC", "has 4 fields; a cron expression has five"),
        ("* * * * * *", "UTC", "has 6 fields"),
        ("0 0 30 2 *", "UTC", "not a cron expression, or never falls due"),
        ("99 * * * *", "UTC", "out of range"),
        ("0 3 * * H", "UTC", "'H' is not a day of the week"),
        ("R * * * *", "UTC", "'R' is not a minute"),
        ("; * * * *", "UTC", "';' is not a minute"),
        ("@reboot", "UTC", "Use five fields"),
        ("0 3 * * *", "Berlin", "Unknown time zone 'Berlin' .similar: Europe/Berlin"),
        ("0 3 * * *", "../etc/passwd", "Unknown time zone"),
        ("0 3 * * *", "", "Unknown time zone ''"),
        ("0 3 * * *", "right/UTC", "Unknown time zone 'right/UTC'"),
    ],
)
def test_what_is_wrong_is_named(expression, zone, words):
    with pytest.raises(InvalidRequest, match=words):
        Cron(expression, zone)


def test_a_long_field_of_letters_is_refused_at_once():
    with pytest.raises(InvalidRequest, match="is not a month"):
        Cron(f"0 0 * {'L' * 10_000}! *", "UTC")
    for expression in ("0 0 L * *", "0 0 * jan-mar,DEC mon#1", "0 0 * * L5"):
        assert Cron(expression, "UTC").fields == expression
