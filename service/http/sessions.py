"""Browsers that have exchanged a key for a session: the cookie, where it counts, and what is remembered of it.

A cookie goes along with whatever a browser sends, so it counts only for requests that a page of this server makes: the
browser says so (`Sec-Fetch-Site`), and what could change something brings a header that no form and no foreign page can add.
"""

import time
from http.cookies import CookieError, SimpleCookie

import anyio
import anyio.to_thread

from service.requests.problems import Forbidden
from storage.control.access import BrowserSession, find_session, session_sha256
from storage.control.control import Control

LIFETIME_S = 12 * 3600
HEADER = b"x-fewpass-console"
SAFE = frozenset({"GET", "HEAD"})
# Another process may have ended a session: what is remembered is looked up again after so long.
REMEMBERED_S = 5.0
MAX_REMEMBERED = 1_000
LOOK_UP_S = 10.0

Headers = dict[bytes, bytes]


def cookie_name(headers: Headers) -> str:
    """The cookie of the port that was asked: servers on other ports of the same host share a browser's cookies."""
    port = headers.get(b"host", b"").rpartition(b":")[2]
    return f"fewpass-{port.decode()}" if port.isdigit() else "fewpass"


def origin_of(scheme: str, headers: Headers) -> str:
    """What the browser asked: scheme, host and port."""
    return f"{scheme}://{headers.get(b'host', b'').decode('latin-1').lower()}"


def session_cookie(headers: Headers) -> str | None:
    """The id of the session that a request names, if it names any."""
    value = headers.get(b"cookie")
    if value is None:
        return None
    try:
        morsel = SimpleCookie(value.decode("latin-1")).get(cookie_name(headers))
    except CookieError:
        return None
    return morsel.value if morsel is not None and morsel.value else None


def check_of_page(method: str, headers: Headers) -> None:
    """Refuse a cookie that comes with a request which no page of this server has made (Forbidden)."""
    site = headers.get(b"sec-fetch-site")
    is_ours = site == b"same-origin" or (site == b"none" and method in SAFE)
    if not is_ours:
        raise Forbidden("A session counts for requests of this server's own pages only. Programs send an API key.")
    if method not in SAFE and HEADER not in headers:
        raise Forbidden(f"A page that changes something sends the header {HEADER.decode()}; this request lacks it.")


class Sessions:
    """The sessions that this process has looked up: each once in few seconds, on a thread."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, BrowserSession]] = {}
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def session(self, control: Control, session_id: str, origin: str) -> BrowserSession | None:
        """The session of an id, if it is of this origin and has not ended."""
        sha256 = session_sha256(session_id)
        now = time.monotonic()
        until, found = self._known.get(sha256, (0.0, None))
        if found is None or until < now:
            with anyio.fail_after(LOOK_UP_S):
                found = await anyio.to_thread.run_sync(
                    find_session, control, sha256, abandon_on_cancel=True, limiter=self._one_at_a_time
                )
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known.pop(sha256, None)
            if found is not None:
                self._known[sha256] = now + REMEMBERED_S, found
        if found is None or found.origin != origin or found.expires_at.timestamp() <= time.time():
            return None
        return found

    def forget(self, id_sha256: str) -> None:
        """A session has ended here."""
        self._known.pop(id_sha256, None)
