"""What a prediction's query string and headers ask for."""

from typing import NamedTuple
from urllib.parse import parse_qsl

from learners.schema.schema import MAX_CLASSES
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest

PREDICTION_KEY, MOST_KEY = b"x-prediction-key", 256


class Options(NamedTuple):
    """What the query string asks for, and the client's own key of the prediction."""

    ignore_unknown: bool = False
    interval: float | None = None
    id: bool = False
    key: str | None = None
    top_k: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the answer is nothing but classes and probabilities, and nobody will ask for it again."""
        return self.interval is None and not self.id and self.key is None and self.top_k is None


NO_OPTIONS = Options()


def checked_key(key: bytes) -> str:
    """A client's key of a prediction, from its header; InvalidRequest if it is empty or too long."""
    text = key.decode("latin-1").strip()
    if not text or len(text) > MOST_KEY:
        raise InvalidRequest(f"X-Prediction-Key needs 1 to {MOST_KEY} characters.", parameter="X-Prediction-Key")
    return text


def options_of(query: bytes) -> Options:
    """What a query string asks for."""
    if not query:
        return NO_OPTIONS
    options: JSONObject = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name in {"ignore_unknown", "id"} and value.lower() in {"true", "false", "1", "0"}:
            options[name] = value.lower() in {"true", "1"}
        elif name == "interval" and (level := _level(value)) is not None:
            options[name] = level
        elif name == "top_k" and value.isdecimal() and 0 < int(value) <= MAX_CLASSES:
            options[name] = int(value)
        else:
            raise InvalidRequest(
                f"Query parameter {name}={value!r} is not allowed. Use ignore_unknown or id, true or false, "
                "interval, a probability above 0 and below 1, or top_k, a number of classes.",
                parameter=name,
            )
    return Options(**options)


def _level(text: str) -> float | None:
    try:
        level = float(text)
    except ValueError:
        return None
    return level if 0 < level < 1 else None
