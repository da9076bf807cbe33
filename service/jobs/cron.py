"""Due times of schedules: cron expressions in a time zone, on days of 23, 24 or 25 hours.

An expression whose hour is a star (``*/15 * * * *``) goes by elapsed time and runs in both of the hours that a clock
shows twice. One with fixed hours (``30 2 * * *``) runs once on each day: in the first of two such hours, and as much later
as the clocks are set forward on the day that lacks it. croniter reads the expressions; the zones are our own, as it
loses days when it goes back over a change of the clocks.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from croniter import croniter

from service.requests.problems import InvalidRequest

FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Clocks are set by an hour, in few places by another part of one.
NEAR = timedelta(hours=3)
# How far to look back for the last time due: far enough for the 29th of February.
BACK = tuple(timedelta(days=days) for days in (0.007, 0.125, 2, 32, 400, 3300))
# Letters in a row are a name or an L: with no other way to divide them, a long field takes no longer than its length.
FIELD = re.compile(r"(?:[0-9*/,#-]|[a-zA-Z]{3}(?![a-zA-Z])|[lL](?![a-zA-Z]))+")
EXAMPLE = "Use five fields, minute hour day month weekday, such as '30 2 * * mon-fri', or @hourly, @daily, @weekly."


@dataclass(frozen=True)
class Cron:
    """A validated cron expression and zone; InvalidRequest if either is invalid or the expression is never due, such as
    on 30 February.
    """

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        zone = self.zone
        try:
            self.after(datetime.now(zone))
        except ValueError as error:
            if isinstance(error, InvalidRequest):
                raise
            raise InvalidRequest(
                f"{self.expression!r} is not a cron expression, or never falls due: {error}. {EXAMPLE}", field="cron"
            ) from error

    @cached_property
    def zone(self) -> ZoneInfo:
        """Time zone of the schedule."""
        try:
            # Those that count leap seconds would be half a minute off.
            return ZoneInfo("" if self.timezone.startswith("right/") else self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            near = [name for name in sorted(available_timezones()) if self.timezone.lower() in name.lower()]
            similar = f" (similar: {', '.join(near[:3])})" if self.timezone and near else ""
            raise InvalidRequest(
                f"Unknown time zone {self.timezone!r}{similar}. Use a name such as Europe/Berlin or UTC.",
                field="timezone",
            ) from error

    @cached_property
    def fields(self) -> str:
        """The cron expression with shorthand expanded."""
        fields = SHORTHANDS.get(self.expression.strip().lower(), self.expression).split()
        if len(fields) != len(FIELDS):
            raise InvalidRequest(
                f"{self.expression!r} has {len(fields)} fields; a cron expression has five. {EXAMPLE}", field="cron"
            )
        for name, text in zip(FIELDS, fields, strict=True):
            if not FIELD.fullmatch(text):
                raise InvalidRequest(f"{text!r} is not a {name}, in {self.expression!r}. {EXAMPLE}", field="cron")
        return " ".join(fields)

    def after(self, moment: datetime) -> datetime:
        """Return the first due time after a moment, in UTC."""
        local = moment.astimezone(self.zone).replace(tzinfo=None)
        # Near a change of the clocks, the order of what they show is not the order of the moments.
        window = NEAR if self._changes_near(moment) else timedelta(0)
        readings = croniter(self.fields, local - window)
        moments: list[datetime] = []
        while True:
            reading: datetime = readings.get_next(datetime)
            if moments and reading > local + window:
                return min(moments)
            moments += [due for due in self._moments(reading) if due > moment]

    def latest(self, moment: datetime) -> datetime:
        """Return the last due time at or before a moment, in UTC."""
        for back in BACK:
            latest, due = None, self.after(moment - back)
            while due <= moment:
                latest, due = due, self.after(due)
            if latest is not None:
                return latest
        raise InvalidRequest(f"{self.expression!r} did not fall due in the past {BACK[-1].days} days.", field="cron")

    def _moments(self, reading: datetime) -> list[datetime]:
        """Return the moments at which the clocks show a reading: one, or none or two when the clocks change."""
        first, second = (reading.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        if self._has_fixed_hours:
            return [first]  # in a gap this is as long after its beginning as the reading would have been
        return [due for due in sorted({first, second}) if due.astimezone(self.zone).replace(tzinfo=None) == reading]

    def _changes_near(self, moment: datetime) -> bool:
        before, after = ((moment + by).astimezone(self.zone).utcoffset() for by in (-NEAR, NEAR))
        return before != after

    @property
    def _has_fixed_hours(self) -> bool:
        return not self.fields.split()[1].startswith("*")
