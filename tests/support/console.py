"""Cases and digits of the what-if page."""

import json
from urllib.parse import parse_qs, urlsplit


def digits(p):
    """A probability as the page writes it."""
    return f"{p:.3f}" if p == 0 or p >= 1e-3 else f"{p:.1e}".replace("e-0", "e-")


def case_of(tab):
    asked = parse_qs(urlsplit(tab.page.url).query)
    return json.loads(asked["case"][0]) if "case" in asked else {}
