"""The type of a JSON object: what requests bring, answers hold, and jobs keep as receipts."""

from typing import Any

JSONObject = dict[str, Any]
