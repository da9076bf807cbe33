"""The types of a JSON object: what requests bring, answers hold, and jobs keep as receipts."""

from collections.abc import Mapping
from typing import Any

JSONObject = dict[str, Any]
JSONMapping = Mapping[str, Any]  # one that is only read
