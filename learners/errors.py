"""Errors of the learners; each names the offending object and suggests a remedy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from importlib.util import find_spec

MOST_NAMED = 8  # columns in one sentence
MOST_SHOWN = 240  # characters of such an error in a message; scikit-learn's on the shape of X has 215
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
    """Replace secrets of URIs in a text by ***: passwords, signatures, tokens and keys."""
    if "://" not in text:
        return text
    shown = _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", _OF_TABLE.sub(r"\1+\2://", text)))
    return _JOINED.sub(r"\1://\2://", shown)


class Surface(Enum):
    """Where the user of this process sets parameters, which decides how messages spell them."""

    PYTHON = "Python"
    COMMAND_LINE = "command line"
    JSON = "JSON"


class _Messages:
    surface = Surface.PYTHON


@contextmanager
def messages_for(surface: Surface) -> Iterator[None]:
    """Spell parameters in messages of this process as on a surface."""
    before, _Messages.surface = _Messages.surface, surface
    try:
        yield
    finally:
        _Messages.surface = before


def setting(name: str, value: object) -> str:
    """Return a parameter with its value, ready to copy into a command, a call or a JSON body."""
    text = json.dumps(value, ensure_ascii=False)
    if _Messages.surface is Surface.PYTHON:
        return f"{name}={value!r}"
    if _Messages.surface is Surface.JSON:
        return f'"{name}": {text}'
    return f"--{name.replace('_', '-')} {shlex.quote(value if isinstance(value, str) else text)}"


ALL_AT_ONCE = "All at once: "  # before the options that read all columns, each of which has a warning of its own


def columns_setting(columns: Mapping[str, object]) -> str:
    """Return what sets these options of columns, ready to copy."""
    return setting("columns", dict(columns))


def known_values_text(value: str, labels: Sequence[str]) -> str:
    """Return the known values that resemble a value, or else the first four, for a message: `'Male', …`."""
    near = get_close_matches(value, labels) or list(labels[:4])
    return ", ".join(map(repr, near)) + (", …" if len(near) < len(labels) else "")


def one_of(given: str, known: Collection[str]) -> str:
    """Return what a name must be, with the known names that resemble it: `one of kdb, xgboost (similar: xgboost)`."""
    near = get_close_matches(given, known)
    return f"one of {', '.join(known)}" + (f" (similar: {', '.join(near)})" if near else "")


def one_line_error_text(error: Exception) -> str:
    """Return the text of an error on one line, without URI secrets, whole data rows, or library stack traces."""
    text = " ".join(str(error)[:MOST_READ].split())
    shown = redact_uri_secrets(_NOT_SHOWN.sub(r"\1", text))
    if len(shown) <= MOST_SHOWN:
        return shown
    cut = shown[: MOST_SHOWN - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"


# Reasons that begin with one of these continue a sentence whose subject is a path, a field or a line.
_VERBS = [
    "is",
    "are",
    "was",
    "has",
    "had",
    "holds",
    "contains",
    "lacks",
    "names",
    "matches",
    "refers",
    "lies",
    "needs",
    "requires",
    "ends",
    "must",
    "may",
    "can",
    "cannot",
    "does",
    "do",
    "belongs",
]


def subject_and_reason(subject: str, reason: str) -> str:
    """Join what is wrong with what it is wrong about: one sentence if the reason begins with a verb, else a colon."""
    return f"{subject}{' ' if reason.partition(' ')[0] in _VERBS else ': '}{reason}"


class LearnerError(Exception):
    """Base class of all errors that learners raise deliberately."""


class ColumnWarning(UserWarning):
    """Warning about columns or values of a table that are unused, or that a model misses."""


class ExtraMissing(LearnerError, ImportError):
    """Raised if an optional library is required but not installed."""

    def __init__(self, purpose: str, library: str, extra: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'fewpass[{extra}]'.")


def require_extra(purpose: str, module: str, library: str, extra: str) -> None:
    """Raise ExtraMissing if a required library is not installed, before any work is done."""
    if find_spec(module) is None:
        raise ExtraMissing(purpose, library, extra)


def require_matplotlib(purpose: str) -> None:
    """Raise ExtraMissing if matplotlib, required for a picture, is not installed."""
    require_extra(purpose, "matplotlib", "matplotlib", "pictures")


class UnknownColumn(LearnerError, KeyError):
    """Raised if a column named by the schema or the caller is not in the table."""

    def __init__(self, column: str, available: Sequence[str]) -> None:
        near = get_close_matches(column, available)
        some = ", ".join(available[:8]) + (", …" if len(available) > 8 else "")
        known = f"similar: {', '.join(near)}" if near else f"its columns: {some or 'none'}"
        super().__init__(f"Column {column!r} is not in the table ({known}).{_quoted_name_text(column, available)}")
        self.column = column

    __str__ = Exception.__str__  # KeyError would print the message in quotes


def _quoted_name_text(column: str, available: Sequence[str]) -> str:
    """Return a sentence about a name that stands in quotes which were read as part of it."""
    name = next((one for one in available if one != column and one.strip().strip("'\"") == column), None)
    if name is None:
        return ""
    if name == f"'{column}'":
        return f" The quotes of {name!r} are part of the name: in a CSV file, set {columns_setting({'*': {'quote': chr(39)}})}."
    return f" The blanks or quotes of {name!r} are part of the name: in a CSV file, remove the blanks behind the delimiters."


class SourceError(LearnerError, ValueError):
    """Raised if data cannot be read: missing, not in the expected format, corrupt, or changed while being read."""

    def __init__(self, path: str, reason: str) -> None:
        path = redact_uri_secrets(path)
        super().__init__(subject_and_reason(path, redact_uri_secrets(reason)))
        self.path = path


class SchemaError(LearnerError, ValueError):
    """Raised if a table does not match the schema, or no schema can be inferred from it."""

    def __init__(
        self, message: str, column: str | None = None, columns: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        super().__init__(message)
        self.column = column
        self.columns = dict(columns or {})  # options of columns with which the table may be learned


class InvalidBuffers(LearnerError, ValueError):
    """Raised if an external batch violates the Arrow format: offsets, indices, text, or number of nulls."""


class InvalidChunk(LearnerError, TypeError):
    """Raised if the codes of encoded rows are not all uint8 or all uint16, which kernels would misread."""


class EmptyData(LearnerError, ValueError):
    """Raised if there are no rows to learn from."""


class EmptyStatistic(LearnerError, ValueError):
    """Raised if a statistic that has counted no rows is evaluated."""


class StatisticMismatch(LearnerError, ValueError):
    """Raised on merging or subtracting statistics of different specifications or schemas."""


class InvalidCounts(LearnerError, ValueError):
    """Raised if a statistic has impossible counts: negative ones, or a table that does not sum to the rows of each
    class.
    """

    def __init__(self, statistic: str, reason: str) -> None:
        super().__init__(
            f"The statistic {statistic!r} is inconsistent: {reason}. No model was built. Please report this as a bug of fewpass."
        )
        self.statistic = statistic


class InvalidPrediction(LearnerError, ArithmeticError):
    """Raised if a model's prediction for a row is not a distribution over the classes."""

    def __init__(self, row: int, probabilities: Sequence[float]) -> None:
        some = ", ".join(f"{p:.6g}" for p in probabilities[:8]) + (", …" if len(probabilities) > 8 else "")
        super().__init__(
            f"Row {row}: the model's probabilities ({some}) do not form a distribution. Train the model again; if the error stays, "
            "please report it as a bug of fewpass."
        )
        self.row = row


class FamilyTooLarge(LearnerError, ValueError):
    """Raised if the counts of an attribute given its parents do not fit into a 63-bit index."""

    def __init__(self, attribute: str, parents: Sequence[str]) -> None:
        super().__init__(
            f"The family of {attribute!r} with parents {', '.join(map(repr, parents))} has more than 2^63 cells. "
            "Use a smaller k, or lower max_values so that rare values are folded."
        )
        self.attribute = attribute


class NoClass(LearnerError, ValueError):
    """Raised if classes are requested from a model without a target."""

    def __init__(self) -> None:
        super().__init__(
            "The model was learned without a target, so it has no classes to predict. Score rows by their log likelihood "
            "(score), fill missing cells (impute), or send queries."
        )


class InvalidArray(LearnerError, ValueError):
    """Raised if an array of a stored model is invalid."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"Array {name!r} of the model {reason}.")
        self.name = name


class InvalidParameter(LearnerError, ValueError):
    """Raised if the value of a parameter is invalid: the message says what it must be, or else why it is refused."""

    def __init__(self, name: str, value: object, must_be: str = "", *, because: str = "") -> None:
        reason = f"must be {must_be}" if must_be else f"is not allowed: {because}"
        super().__init__(f"Parameter {name}={value!r} {reason}" + ("" if reason.endswith("…") else "."))
        self.name = name


class InvalidArgument(InvalidParameter):
    """Raised if an argument that is no short value, such as a table, is invalid: the message says what it has, or names its type."""

    def __init__(self, name: str, value: object, must_be: str = "", *, because: str = "", has: str = "") -> None:
        kind = type(value).__name__
        text = f"({kind}) cannot be used: {because}"
        if must_be or has:
            text = f"must be {must_be}, not {kind}" if must_be else f"has {has}"
        LearnerError.__init__(self, f"Argument {name} {text}.")
        self.name = name


class NoImportances(LearnerError, AttributeError):
    """Raised if a model has no attribute importances; as an AttributeError, it makes `hasattr` return False."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"Models of kind {kind!r} have no attribute importances.")


class Cancelled(LearnerError):
    """Raised by a progress callback to stop a pass between two chunks."""


class ClusterError(LearnerError, ConnectionError):
    """Raised if a Dask cluster cannot be used."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"The cluster {address} cannot be used: {reason}.")
        self.address = address


def names_with_suggestions(names: Sequence[str], others: Sequence[str]) -> str:
    """Join the first names for a message, each with similar names among the others."""
    words = []
    for name in names[:MOST_NAMED]:
        near = get_close_matches(name, others)
        words.append(f"{name!r}" + (f" (similar: {', '.join(near)})" if near else ""))
    return ", ".join(words) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
