"""Errors of the learners: each names the offending thing and says what to do."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec

MOST_NAMED = 8  # columns in one sentence
MOST_READ = 4096  # characters of an error of a library, which may quote what it was given

# A password before a host, which a number of a port is not; and parameters of signed URIs and of those with a key.
_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*://[^/?#\s@:]*):(?!\d+(?:[/?#]|$))[^\s?#]*@", re.IGNORECASE)
_SECRET_NAMES = r"(?:[\w.-]*[-_.])?sig|[\w.%-]*(?:signature|token|secret|passw|pwd|key|credential|auth)[\w.%-]*"
_SECRET_PARAMETER = re.compile(rf"([?&;](?:{_SECRET_NAMES})=)[^&;#\s'\")]+", re.IGNORECASE)
# The address of a lake table begins with two schemes, and the second is no user.
_OF_TABLE = re.compile(r"\b(delta|iceberg)://([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# A row of a file of CSV, which whoever may see the error may not always read; and the stack that delta-rs tells.
_NOT_SHOWN = re.compile(
    r"(Expected \d+ columns, got \d+): .*|(?:\s+stack)?\s+backtrace:\s.*|\s+0: <unknown>.*", re.IGNORECASE
)
_JOINED = re.compile(r"\b(delta|iceberg)\+([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def redact_uri_secrets(text: str) -> str:
    """A text with *** in place of the secrets of the URIs in it: passwords, signatures, tokens and keys."""
    if "://" not in text:
        return text
    shown = _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", _OF_TABLE.sub(r"\1+\2://", text)))
    return _JOINED.sub(r"\1://\2://", shown)


def columns_flag(columns: Mapping[str, object]) -> str:
    """The flag that says something of columns, to be copied into a command."""
    return f"--columns {shlex.quote(json.dumps(columns, ensure_ascii=False))}"


def one_line_error_text(error: Exception) -> str:
    """The text of an error, short and without secrets of URIs, whole rows of the data, or the stack of a library."""
    text = " ".join(str(error)[:MOST_READ].split())
    return redact_uri_secrets(_NOT_SHOWN.sub(r"\1", text))[:200]


class LearnerError(Exception):
    """Base of all errors that learners raise on purpose."""


class ColumnWarning(UserWarning):
    """Columns or values of a table that are not used, or that a model misses."""


class ExtraMissing(LearnerError, ImportError):
    """A library that a plain install does not bring is needed."""

    def __init__(self, purpose: str, library: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'fewpass[{extra}]'.")


def require_extra(purpose: str, module: str, library: str, extra: str) -> None:
    """Refuse what needs a library that is not installed, before any work is done (ExtraMissing)."""
    if find_spec(module) is None:
        raise ExtraMissing(purpose, library, extra)


def require_matplotlib(purpose: str) -> None:
    """Refuse a picture where matplotlib is not installed (ExtraMissing)."""
    require_extra(purpose, "matplotlib", "matplotlib", "pictures")


class UnknownColumn(LearnerError, KeyError):
    """A column that the schema or the caller names is not in the table."""

    def __init__(self, column: str, available: Sequence[str]) -> None:
        near = get_close_matches(column, available)
        some = ", ".join(available[:8]) + (", …" if len(available) > 8 else "")
        known = f"similar: {', '.join(near)}" if near else f"its columns: {some or 'none'}"
        super().__init__(f"Column {column!r} is not in the table ({known}).")
        self.column = column

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class SourceError(LearnerError, ValueError):
    """The data cannot be read: no such file, not Parquet, corrupt, or changed while it was read."""

    def __init__(self, path: str, reason: str) -> None:
        path = redact_uri_secrets(path)
        super().__init__(f"{path}: {redact_uri_secrets(reason)}")
        self.path = path


class SchemaError(LearnerError, ValueError):
    """The table does not fit the schema, or no schema can be made of it."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


class InvalidBuffers(LearnerError, ValueError):
    """A batch from outside does not hold what Arrow says it must: offsets, indices, text, number of nulls."""


class InvalidChunk(LearnerError, TypeError):
    """Encoded rows whose codes are not of one type, uint8 or uint16: kernels would read other numbers."""


class EmptyData(LearnerError, ValueError):
    """There are no rows to learn from."""


class EmptyStatistic(LearnerError, ValueError):
    """An answer was asked of a statistic that has counted no rows."""


class StatisticMismatch(LearnerError, ValueError):
    """Two statistics of different specifications or schemas cannot be merged or subtracted."""


class InvalidCounts(LearnerError, ValueError):
    """A statistic holds counts that no rows have: negative ones, or a table that does not sum to the rows of each class."""

    def __init__(self, statistic: str, reason: str) -> None:
        super().__init__(
            f"The statistic {statistic!r} is wrong: {reason}. No model was made of it. This is a fault of fewpass: report it."
        )
        self.statistic = statistic


class InvalidPrediction(LearnerError, ArithmeticError):
    """A model's answer for a row is no distribution over the classes."""

    def __init__(self, row: int, probabilities: Sequence[float]) -> None:
        some = ", ".join(f"{p:.6g}" for p in probabilities[:8]) + (", …" if len(probabilities) > 8 else "")
        super().__init__(
            f"Row {row}: the model's probabilities ({some}) are no distribution. Train the model again; if it stays so, "
            "this is a fault of fewpass: report it."
        )
        self.row = row


class FamilyTooLarge(LearnerError, ValueError):
    """The counts of an attribute given its parents cannot be indexed by 63 bits."""

    def __init__(self, attribute: str, parents: Sequence[str]) -> None:
        super().__init__(
            f"The family of {attribute!r} with parents {', '.join(map(repr, parents))} has more than 2^63 cells. "
            "Use a smaller k, or lower max_values so that rare values are folded."
        )
        self.attribute = attribute


class NoClass(LearnerError, ValueError):
    """Classes were asked of a model that was learned without a target."""

    def __init__(self) -> None:
        super().__init__(
            "The model was learned without a target, so it has no classes to predict. Score rows by their log likelihood "
            "(score), fill missing cells (impute), or send queries."
        )


class InvalidArray(LearnerError, ValueError):
    """An array of a stored model is not what the model's own training would have written."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Array {name!r} of the model {reason}.")
        self.name = name


class InvalidParameter(LearnerError, ValueError):
    """A parameter of a learner is outside its range."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"Parameter {name}={value!r} is not allowed: {allowed}.")
        self.name = name


class NoImportances(LearnerError, AttributeError):
    """A model that does not tell how important its attributes are: it lacks what `hasattr` looks for."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"Models of kind {kind!r} have no importances of attributes.")


class Cancelled(LearnerError):
    """Raised by a progress callback to stop a pass between two chunks."""


class ClusterError(LearnerError, ConnectionError):
    """A Dask cluster cannot be used."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"The cluster {address} cannot be used: {reason}.")
        self.address = address


def names_with_suggestions(names: Sequence[str], others: Sequence[str]) -> str:
    """The first names as words of a sentence, each with similar ones among others."""
    words = []
    for name in names[:MOST_NAMED]:
        near = get_close_matches(name, others)
        words.append(f"{name!r}" + (f" (similar: {', '.join(near)})" if near else ""))
    return ", ".join(words) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
