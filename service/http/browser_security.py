"""What a web page may make a browser do here, and what browsers are told about our answers.

Without keys, whoever reaches the server may do everything. A page of somebody else must then not use the browser of a user
who can: neither by sending requests (cross-site request forgery), nor by giving this machine a name of its own (DNS
rebinding).

References
----------
W3C, Fetch Metadata Request Headers. RFC 6454, The Web Origin Concept.
"""

import ipaddress

from service.requests.problems import Forbidden
from service.settings import Settings, is_loopback

SAFE = frozenset({"GET", "HEAD"})  # a page may send them; the browser does not let it read the answer
DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
MAX_SEEN = 100

Headers = list[tuple[bytes, bytes]]

_ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
# Answers are data: whatever they hold, a browser that shows one loads and runs nothing. Pictures bring their own styles.
_DATA: Headers = [
    *_ALWAYS,
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox",
    ),
]
# Pages run our own files, ask this server, and nothing else: no script or style stands in them.
_CONSOLE: Headers = [
    *_ALWAYS,
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_PAGES = ("/docs", "/console")


def protection_of(path: str) -> Headers:
    """The headers that tell browsers what an answer may do."""
    is_page = any(path == page or path.startswith(f"{page}/") for page in _PAGES)
    return _CONSOLE if is_page else _DATA


class Visitors:
    """Tells requests of foreign pages from all others, by where the settings say that the server listens."""

    def __init__(self, settings: Settings) -> None:
        self._names = frozenset(name.lower().encode() for name in settings.trusted_hosts)
        self._known = {b"localhost", settings.host.lower().encode()} | self._names
        # With keys, a name that somebody else gave this machine opens nothing, so it matters only if names are listed.
        self._checks_host = bool(settings.trusted_hosts) or not settings.needs_keys
        self._seen: set[bytes | None] = set()

    def check(self, method: str, scheme: str, headers: dict[bytes, bytes]) -> None:
        """Refuse a request that a foreign page has sent, or that came under a foreign name (Forbidden)."""
        host = headers.get(b"host")
        is_of_browser = b"sec-fetch-site" in headers or b"origin" in headers
        if is_of_browser and method not in SAFE and self._is_foreign(scheme, host or b"", headers):
            raise Forbidden(
                "Pages of other sites and ports may neither change anything here nor ask for predictions. "
                "Send the request without a browser, or from one of this server's own pages."
            )
        if host not in self._seen:
            self.check_host(host)
            if len(self._seen) < MAX_SEEN:
                self._seen.add(host)

    def check_host(self, host: bytes | None) -> None:
        """Refuse a Host that is neither where this server listens nor a trusted name (Forbidden); programs may send none."""
        if host is None:
            return
        name = without_port(host)
        if not name:
            raise Forbidden("The header Host is empty. Name the host that you ask, or leave the header out (HTTP/1.0).")
        if not self._checks_host:
            return
        if name not in self._known and not is_loopback(name.strip(b"[]").decode("latin-1")):
            text = host.decode("latin-1")
            raise Forbidden(
                f"This server does not answer as {text!r}. Ask for localhost or the address that it listens on, or name "
                "the host in FEWPASS_TRUSTED_HOSTS.",
                host=text,
            )

    def _is_foreign(self, scheme: str, host: bytes, headers: dict[bytes, bytes]) -> bool:
        """Whether another page than ours asks. New browsers say so themselves; all say where the page is from."""
        site = headers.get(b"sec-fetch-site")
        if site == b"same-origin":  # behind a proxy that changes the host, the origin is another one
            return False
        # What a user does without a page has no origin, so `none` beside a foreign one is not believed.
        if site not in (None, b"none"):
            return True
        if b"origin" not in headers:
            return False
        kind, _, place = headers[b"origin"].lower().partition(b"://")
        ours = _plain(scheme.encode(), host.lower())
        if kind == scheme.encode():
            return _plain(kind, place) != ours
        # A proxy before a trusted name speaks HTTPS to the browser and HTTP to us.
        is_trusted = kind == b"https" and without_port(place) in self._names
        return not (is_trusted and _plain(kind, place) == ours)


def _plain(scheme: bytes, place: bytes) -> bytes:
    """A host and port, without the port that the scheme has anyway."""
    return place.removesuffix(DEFAULT_PORTS.get(scheme, b":"))


def without_port(host: bytes) -> bytes:
    """The name in a Host header, in lower case."""
    name, separator, port = host.lower().rpartition(b":")
    return name if separator and port.isdigit() and not _is_bare_ipv6(host) else host.lower()


def _is_bare_ipv6(host: bytes) -> bool:
    try:
        return isinstance(ipaddress.ip_address(host.decode("latin-1")), ipaddress.IPv6Address)
    except ValueError:
        return False
