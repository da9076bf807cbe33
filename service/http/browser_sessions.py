"""Browser sessions: a browser exchanges a key for a session cookie, so that it never stores the key.

A cookie goes along with whatever a browser sends, so it counts only for requests that a page of this server makes: the
browser says so (`Sec-Fetch-Site`), and what could change something brings a header that no form and no foreign page can add.
"""

import re
import time
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from service.requests.problems import Forbidden, problem_from_error
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import (
    BrowserSession,
    api_key_token_sha256,
    browser_session_sha256,
    create_browser_session,
    delete_browser_session,
    find_browser_session,
)
from storage.control.control import Control
from storage.errors import InvalidKey

PATH = "/console/session"
HOME = "/console"
MAX_BODY = 16_384
LIFETIME_S = 12 * 3600
HEADER = b"x-fewpass-console"
SAFE = frozenset({"GET", "HEAD"})
SESSION_ID = re.compile(rb"[A-Za-z0-9_-]{1,200}")
# Another process may have ended a session: what is remembered is looked up again after so long.
REMEMBERED_S = 5.0
MAX_REMEMBERED = 1_000
LOOK_UP_S = 10.0

Headers = dict[bytes, bytes]


def session_cookie_name(headers: Headers) -> str:
    """Return the cookie name for the requested port; servers on other ports of the host share a browser's cookies."""
    port = headers.get(b"host", b"").rpartition(b":")[2]
    return f"fewpass-{port.decode()}" if port.isdigit() else "fewpass"


def request_origin(scheme: str, headers: Headers) -> str:
    """Return the requested origin: scheme, host and port."""
    return f"{scheme}://{headers.get(b'host', b'').decode('latin-1').lower()}"


def session_id_from_cookie(headers: Headers) -> str | None:
    """Return the session id in the cookie of a request; None without one."""
    # `http.cookies` takes a time that grows with the square of the length, and session ids need none of its quoting.
    name = session_cookie_name(headers).encode()
    for part in headers.get(b"cookie", b"").split(b";"):
        own, _, value = part.strip().partition(b"=")
        if own == name:
            return value.decode() if SESSION_ID.fullmatch(value) else None
    return None


def check_session_csrf(method: str, headers: Headers) -> None:
    """Refuse a session cookie on a request that no page of this server made (Forbidden)."""
    site = headers.get(b"sec-fetch-site")
    is_ours = site == b"same-origin" or (site == b"none" and method in SAFE)
    if not is_ours:
        raise Forbidden(
            "A session is valid only for requests from this server's own pages. Programs must send an API key."
        )
    if method not in SAFE and HEADER not in headers:
        raise Forbidden(f"A page that changes something sends the header {HEADER.decode()}; this request lacks it.")


class Sessions:
    """Cache of the sessions that this process has looked up: each is looked up at most once every few seconds, on a
    thread.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, BrowserSession]] = {}
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def session(self, control: Control, session_id: str, origin: str) -> BrowserSession | None:
        """Return the session of an id if it belongs to this origin and has not ended, else None."""
        sha256 = browser_session_sha256(session_id)
        now = time.monotonic()
        until, session = self._known.get(sha256, (0.0, None))
        if session is None or until < now:
            with anyio.fail_after(LOOK_UP_S):
                session = await anyio.to_thread.run_sync(
                    find_browser_session, control, sha256, abandon_on_cancel=True, limiter=self._one_at_a_time
                )
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known.pop(sha256, None)
            if session is not None:
                self._known[sha256] = now + REMEMBERED_S, session
        if session is None or session.origin != origin or session.expires_at.timestamp() <= time.time():
            return None
        return session

    def forget(self, id_sha256: str) -> None:
        """Drop a session that has ended from the cache."""
        self._known.pop(id_sha256, None)


def session_routes() -> list[Route]:
    """Return the sign-in and sign-out routes."""
    return [Route(PATH, sign_in, methods=["POST"]), Route(f"{PATH}/end", sign_out, methods=["POST"])]


async def sign_in(request: Request) -> Response:
    """Exchange the key of a form for a cookie that scripts cannot read and other sites cannot send."""
    guard = request.app.guard
    headers = request.scope["fewpass.headers"]
    guard.visitors.check(request.method, request.url.scheme, headers)
    form = parse_qs((await request.body())[:MAX_BODY].decode("utf-8", "replace"))
    token, page = form.get("key", [""])[0].strip(), form.get("next", [HOME])[0]
    if guard.login is not None and guard.login.is_token(token.encode()):
        raise Forbidden(
            "Sign in to the console with an API key. Tokens of the company's login are accepted by REST only."
        )
    try:
        guard.attribute(guard.key(token.encode()), request.scope)
    except InvalidKey as error:
        problem = problem_from_error(error)
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse(f"{HOME}/login?refused=1", HTTPStatus.SEE_OTHER, headers={"x-problem": problem.slug})
    workspace: Workspace = request.app.state.workspace
    origin = request_origin(request.url.scheme, headers)
    lifetime = timedelta(seconds=LIFETIME_S)
    session_id = await anyio.to_thread.run_sync(
        create_browser_session, workspace.control, api_key_token_sha256(token.encode()), origin, lifetime
    )
    answer = RedirectResponse(safe_redirect_path(page), HTTPStatus.SEE_OTHER)
    is_https, name = request.url.scheme == "https", session_cookie_name(headers)
    answer.set_cookie(name, session_id, max_age=LIFETIME_S, secure=is_https, httponly=True, samesite="strict")
    return answer


async def sign_out(request: Request) -> Response:
    """End the session, on the server and in the browser. Raises Forbidden for a page of another origin."""
    headers = request.scope["fewpass.headers"]
    if headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        raise Forbidden("Only a page of this server ends its session.")
    session_id = session_id_from_cookie(headers)
    if session_id is not None:
        workspace: Workspace = request.app.state.workspace
        await anyio.to_thread.run_sync(delete_browser_session, workspace.control, browser_session_sha256(session_id))
        request.app.guard.sessions.forget(browser_session_sha256(session_id))
    answer = Response(status_code=HTTPStatus.NO_CONTENT)
    answer.delete_cookie(session_cookie_name(headers), httponly=True, samesite="strict")
    return answer


def safe_redirect_path(path: str) -> str:
    """Return the path if it is a console path of this server, else the first page."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours and path.split("?")[0].startswith(HOME) else HOME
