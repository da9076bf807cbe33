"""Schemas: kind, domain and codes of each column; and chunks of encoded rows."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from learners.errors import InvalidChunk
from learners.kernels.arrays import Codes, Floats, Integers, Mask, Uint64s, freeze_arrays, read_only_array
from learners.schema.nominal_forms import canonical_nominal_values
from learners.schema.presence import CodeLayout
from learners.schema.reading import LATER_FIELDS, Dialect, Reading
from learners.schema.time_parts import CYCLES, Cycle, TimePart
from learners.schema.times_and_durations import (
    clock_kind_and_ticks,
    is_date_or_timestamp,
    moment_text,
    time_or_duration_text,
)

# What the numbers of a numeric column may be distributed as, beside intervals.
Distribution = Literal[
    "gaussian", "poisson", "exponential", "student", "lognormal", "quantile",
    "rounded", "rounded-lognormal", "rounded-quantile",
]  # fmt: skip
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
# Those that give a probability to every number, where others have a density.
MASSES = ("poisson", "rounded", "rounded-lognormal", "rounded-quantile")
Kind = Literal["nominal", "numeric"]
Cuts = Literal["kept", "fresh", "auto"]
Value = str | int | bool

FEW_CLASSES, MAX_CLASSES = 256, 10_000
OTHER = "(other)"
# Of one table: 8 KiB stay in the first-level cache.
MAX_KEYS = 1024
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST = sys.float_info.max
CODE_TYPES = (np.dtype(np.uint8), np.dtype(np.uint16))


@dataclass(frozen=True)
class Attribute(CodeLayout):
    """One column of the model and its domain.

    Codes run from 0 to `n_values` - 1: first missing (code 0, only if it occurs), then the values of a nominal
    attribute or the intervals of a numeric one, last the folded rare values (only if there are any). The code
    `n_values` means a value unseen in training or an absent column.
    """

    name: str
    kind: Kind  # "nominal" or "numeric"
    values: tuple[Value, ...] = ()  # values of a nominal attribute in code order, without missing and folded ones
    cuts: tuple[float, ...] = ()  # ascending; interval j of a numeric attribute holds cuts[j - 1] < x <= cuts[j]
    has_missing: bool = False  # whether null or NaN occurred in training
    arrow_type: str = "string"  # type of the column in training
    n_folded: int = 0  # how many rare values share the last code
    # Of numbers that the model sees beside their codes. Those in `MASSES` are probabilities, the others densities. "rounded"
    # ones are over the cells of the grid on which the column is recorded.
    distribution: Distribution | None = None
    # Coarser cut points of a numeric attribute, each as ascending positions in `cuts`; the members of an ensemble read
    # the attribute by them (`learners.schema.encoding.column_views`).
    groupings: tuple[tuple[int, ...], ...] = ()
    # Of a numeric column in training: the least value, evenly spaced quantiles, the greatest; for those who watch what
    # is served. No part of what the codes mean, so schemas that differ in nothing else are equal.
    quantiles: tuple[float, ...] = field(default=(), compare=False)
    # How its values are written in text files; no part of what the codes mean, either.
    reading: Reading | None = field(default=None, compare=False)
    # Of moments: the part that the cut points divide; None if these are moments.
    part: TimePart | None = None

    @property
    def n_regular(self) -> int:
        """Number of values or intervals, without null and other."""
        return len(self.values) if self.kind == "nominal" else len(self.cuts) + 1

    @property
    def is_time(self) -> bool:
        """True if the numbers are seconds since 1970."""
        return self.kind == "numeric" and is_date_or_timestamp(self.arrow_type)

    @property
    def cycle(self) -> Cycle | None:
        """The recurring time whose phases the cut points divide."""
        return CYCLES.get(self.part) if self.part else None

    @property
    def edges(self) -> tuple[float, ...]:
        """Training minimum, outermost quantiles and maximum, including infinities; empty without numbers.

        `quantiles` are finite, because JSON has no infinity: the largest double represents it.
        """
        outermost = (self.quantiles[place] for place in (0, 1, -2, -1)) if self.quantiles else ()
        return tuple(number if abs(number) < LARGEST else math.copysign(math.inf, number) for number in outermost)

    @property
    def clock(self) -> tuple[str, int] | None:
        """Kind and unit of times of day or durations, see `clock_kind_and_ticks`; else None."""
        return clock_kind_and_ticks(self.arrow_type) if self.kind == "numeric" else None

    def number_in_words(self, number: float) -> str | float:
        """Format a timestamp, time of day or duration as ISO 8601; other numbers are returned unchanged."""
        try:
            if self.clock is not None:
                words = time_or_duration_text(*self.clock, number)
                return number if words is None else words
            return moment_text(EPOCH + timedelta(seconds=number)) if self.is_time else number
        except (OverflowError, ValueError):  # before year 1 or after 9999
            return number

    def number_text(self, number: float) -> str:
        """Format a number for a message: ISO 8601 for times and durations, else six digits."""
        words = self.number_in_words(number)
        return words if isinstance(words, str) else f"{number:.6g}"

    def cuts_in_words(self) -> list[str]:
        """Format the cut points, with enough digits to distinguish them."""
        for digits in range(6, 18):
            words = [f"{cut:.{digits}g}" for cut in self.cuts]
            if len(set(words)) == len(words):
                break
        if self.part is not None or (not self.is_time and self.clock is None):
            return words
        pairs = zip(map(self.number_in_words, self.cuts), words, strict=True)
        return [text if isinstance(text, str) else word for text, word in pairs]

    def value_keys(self) -> list[int]:
        """Return 64-bit keys of the codes and of the unseen code, which depend only on the value, not on the rest of
        the domain.
        """
        tokens: list[object] = ["missing"] if self.has_missing else []
        if self.kind == "nominal":
            tokens += [("value", value) for value in self.values]
        else:
            edges = [float("-inf"), *self.cuts, float("inf")]
            tokens += list(zip(edges, edges[1:], strict=False))
        tokens += ["folded"] if self.n_folded else []
        return [_key(self.name, self.kind, token) for token in [*tokens, "unseen"]]

    def labels(self) -> list[str]:
        """Return a readable label for each code."""
        words = ["(missing)"] if self.has_missing else []
        if self.kind == "nominal":
            words += [str(value) for value in self.values]
        elif self.part is not None:
            words += CYCLES[self.part].labels
        else:
            edges = ["-inf", *self.cuts_in_words(), "inf"]
            words += [f"({low}, {high}]" for low, high in zip(edges, edges[1:], strict=False)]
        return words + ([OTHER] if self.n_folded else [])

    def unique_labels(self) -> list[str]:
        """Return distinct labels, even if a value is named "(missing)" or "(other)"."""
        labels = self.labels()
        if self.kind == "nominal":
            for place in [0] * self.first_code + [len(labels) - 1] * (self.n_folded > 0):
                while labels.count(labels[place]) > 1:
                    labels[place] = f"({labels[place]})"
        return labels


def _key(*content: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(content).encode(), digest_size=8).digest(), "little")


NO_CUT = "its values do not predict the class on their own"
# In models of release 0.2.0, and in the keys of stored counts.
STORED_NO_CUT = "no cut point tells the classes apart"


@dataclass(frozen=True)
class LeftOut:
    """A column that the model does not use, with the reason."""

    name: str
    reason: str
    # Whether it is left out because its values only go on and later rows are predicted better without it: a refresh keeps
    # this decision, whatever the words of the reason. No part of what the codes mean.
    goes_on: bool = field(default=False, compare=False)


class KeyTables(NamedTuple):
    """Keys of combinations of values, including the unseen code."""

    firsts: Integers  # (n_tables + 1,) int64: the first attribute of each table
    radices: Integers  # (n_attributes,) int64
    keys: Uint64s  # (sum of sizes,) uint64: the last attribute of a table varies fastest
    starts: Integers  # (n_tables + 1,) int64


@dataclass(frozen=True)
class Schema:
    """Attributes, target and classes; stored in every model, so that training and serving encode alike.

    Parameters
    ----------
    target : str or None
        Name of the class column; None for an unsupervised model.
    classes : tuple of str
        Names of the classes in code order; one nameless class without a target.
    class_type : str
        "string", "int64" or "bool": what the class column holds.
    left_out : tuple of LeftOut
        Columns of the data that are not used.
    dialect : Dialect or None
        Dialect of CSV files, as far as training knows it; no part of what the codes mean.
    null_class : str, int or None
        What rows without a class were in training: "drop" leaves them out, anything else is their class.
    class_reading : Reading or None
        Options for reading classes in text files, as far as training knew them.
    """

    attributes: tuple[Attribute, ...]
    target: str | None
    classes: tuple[str, ...]
    class_type: str = "string"
    left_out: tuple[LeftOut, ...] = ()
    dialect: Dialect | None = field(default=None, compare=False)
    null_class: str | int | None = field(default=None, compare=False)
    class_reading: Reading | None = field(default=None, compare=False)

    @property
    def n_attributes(self) -> int:
        """Number of attributes."""
        return len(self.attributes)

    @property
    def n_classes(self) -> int:
        """Number of classes; 1 without a target."""
        return len(self.classes)

    def has_word(self, column: str, text: str) -> bool:
        """Return whether a text is a value of a column of text, or a class that is a text."""
        if column == self.target:
            return self.class_type == "string" and text in self.classes
        return any(own.name == column and own.kind == "nominal" and text in own.values for own in self.attributes)

    @cached_property
    def domain_sizes(self) -> Integers:
        """`n_values` of each attribute, (n_attributes,) int64, read-only."""
        return read_only_array(np.array([attribute.n_values for attribute in self.attributes], np.int64))

    @cached_property
    def continuous(self) -> tuple[int, ...]:
        """Attributes whose numbers are included in chunks."""
        return tuple(i for i, attribute in enumerate(self.attributes) if attribute.distribution is not None)

    @cached_property
    def value_keys(self) -> KeyTables:
        """Keys of all combinations of values of adjacent attributes, as long as their table stays small."""
        firsts, tables = [0], []
        table = np.zeros(1, np.uint64)
        for index, attribute in enumerate(self.attributes):
            keys = np.array(attribute.value_keys(), dtype=np.uint64)
            if index and table.size * keys.size > MAX_KEYS:
                firsts.append(index)
                tables.append(table)
                table = np.zeros(1, np.uint64)
            table = (table[:, np.newaxis] + keys).ravel()  # sums of keys wrap around, as the kernel's do
        tables.append(table)
        return KeyTables(
            np.array([*firsts, self.n_attributes], dtype=np.int64),
            self.domain_sizes + 1,
            np.concatenate(tables),
            np.cumsum([0, *(table.size for table in tables)]).astype(np.int64),
        )

    @cached_property
    def class_keys(self) -> Uint64s:
        """Keys of the classes, (n_classes,) uint64."""
        return np.array([_key("class", name) for name in self.classes], dtype=np.uint64)

    @property
    def code_dtype(self) -> type[np.uint8] | type[np.uint16]:
        """Smallest type that holds every code of attributes and class, including unseen ones."""
        return np.uint8 if max(int(self.domain_sizes.max(initial=0)), self.n_classes) <= 255 else np.uint16

    @property
    def columns(self) -> list[str]:
        """Names of the columns to read, the target last."""
        return [*dict.fromkeys(one.name for one in self.attributes), *([] if self.target is None else [self.target])]

    def class_values(self) -> list[Value]:
        """Return the classes with their original type."""
        if self.class_type == "int64":
            return [int(name) for name in self.classes]
        if self.class_type == "bool":
            return [name == "True" for name in self.classes]
        return list(self.classes)

    def to_json(self) -> str:
        """Return the schema as JSON, for `from_json`."""
        return self._json

    @cached_property
    def _json(self) -> str:
        def entries_of(entry: Schema | Attribute | LeftOut | Reading | Dialect) -> dict[str, object]:
            of = {each.name: getattr(entry, each.name) for each in fields(entry)}
            # Without them, the schemas of other learners stay as they were stored.
            later = {"groupings", "quantiles", "reading", "expected", "dialect", "null_class", "class_reading", "part"}
            later.update(("goes_on", *LATER_FIELDS))
            return {name: value for name, value in of.items() if value or name not in later}

        return json.dumps(entries_of(self), default=entries_of, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Build a schema from the output of `to_json`."""
        document = json.loads(text)
        attributes = tuple(
            Attribute(
                **(
                    entry
                    | {
                        "values": canonical_nominal_values(entry["values"], entry["arrow_type"]),
                        "cuts": tuple(entry["cuts"]),
                    }
                    | {"groupings": tuple(tuple(positions) for positions in entry.get("groupings", ()))}
                    | {"quantiles": tuple(entry.get("quantiles", ()))}
                    | ({"reading": Reading.of(entry["name"], entry["reading"])} if "reading" in entry else {})
                )
            )
            for entry in document.pop("attributes")
        )
        words = {STORED_NO_CUT: NO_CUT}
        left_out = tuple(
            LeftOut(**entry | {"reason": words.get(entry["reason"], entry["reason"])})
            for entry in document.pop("left_out")
        )
        dialect = Dialect(**document.pop("dialect")) if "dialect" in document else None
        classes = tuple(document.pop("classes"))
        if "class_reading" in document:
            document["class_reading"] = Reading.of(str(document["target"]), document["class_reading"])
        return cls(attributes=attributes, left_out=left_out, dialect=dialect, classes=classes, **document)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the meaning of the codes, used in the keys of stored statistics."""
        plain = tuple(replace(attribute, quantiles=(), reading=None) for attribute in self.attributes)
        words = {NO_CUT: STORED_NO_CUT}
        left_out = tuple(
            replace(entry, goes_on=False, reason=words.get(entry.reason, entry.reason)) for entry in self.left_out
        )
        bare = replace(self, attributes=plain, left_out=left_out, dialect=None, null_class=None, class_reading=None)
        return hashlib.sha256(bare.to_json().encode()).hexdigest()


@dataclass(frozen=True)
class Kept:
    """Schema of the last training, for a refresh; the domains are updated in any case.

    Parameters
    ----------
    schema : Schema
    cuts : "kept", "fresh" or "auto"
        Keep its attributes and cut points, or use those of training from scratch. "auto" keeps
        them until that costs too much (`learners.passes.refreshed_schema`).
    """

    schema: Schema
    cuts: Cuts = "kept"


@dataclass(frozen=True, eq=False)
class Chunk:
    """A batch of encoded rows, column-major and read-only.

    Parameters
    ----------
    x : (n_attributes, n_rows) uint8 or uint16, C-contiguous
        Codes of the attributes; `schema.attributes[i].n_values` stands for a value that training never saw.
    y : (n_rows,) uint8 or uint16, or None
        Codes of the class, of the type of `x`.
    numbers : (len(schema.continuous), n_rows) float64, or None
        The numbers themselves of attributes that have a distribution; NaN where missing or absent.

    Raises
    ------
    InvalidChunk
        If the codes of `x` are neither uint8 nor uint16, or those of `y` are of another type or of other rows.
    """

    x: Codes
    y: Codes | None
    numbers: Floats | None = None

    def __post_init__(self) -> None:
        if self.x.dtype not in CODE_TYPES:
            raise InvalidChunk(f"Attribute codes must be uint8 or uint16, not {self.x.dtype}.")
        if self.y is not None and (self.y.dtype != self.x.dtype or self.y.shape != self.x.shape[1:]):
            raise InvalidChunk(
                f"Codes of the class are {self.y.dtype} of shape {self.y.shape}, those of the attributes {self.x.dtype} of shape {self.x.shape}."
            )
        # To numba a read-only array is another type: freezing every chunk keeps one compiled signature per kernel.
        freeze_arrays(*(array for array in (self.x, self.y, self.numbers) if array is not None))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.x.shape[1])

    def rows(self, index: Integers | Mask | slice) -> Chunk:
        """Select rows by an index array, mask or slice, in its order."""
        y = None if self.y is None else np.ascontiguousarray(self.y[index])
        numbers = None if self.numbers is None else np.ascontiguousarray(self.numbers[:, index])
        return Chunk(np.ascontiguousarray(self.x[:, index]), y, numbers)
