"""Access control: API keys with roles, checked in memory by pure ASGI middleware so that predictions cost nothing
extra.

Keys are needed wherever others than this machine can reach the server. On loopback they are optional: a request
without one may do everything there, unless it comes from a foreign web page.

Without keys, every client that reaches the server may do everything. A foreign page must then not use the browser of
a user who can: neither by sending requests (cross-site request forgery), nor by giving this machine a name (DNS
rebinding).

References
----------
W3C, Fetch Metadata Request Headers. RFC 6454, The Web Origin Concept.
"""

import contextlib
import ipaddress
import math
import threading
import time
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from starlette._utils import get_route_path
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.api.bodies import send_problem_body
from service.http.browser_sessions import Sessions, check_session_csrf, request_origin, session_id_from_cookie
from service.http.company_login import CompanyLogin, LoginKey
from service.http.paths import RouteRoles
from service.requests.problems import Forbidden, InvalidRequest, KeyNeeded, TooManyRequests
from service.settings import Settings, is_loopback
from service.telemetry import REQUEST_ID
from storage.control.api_keys_and_sessions import ApiKey, Role, api_key_token_sha256, api_keys_by_hash
from storage.control.audit import Actor, set_actor
from storage.control.control import Control, control_generation
from storage.errors import InvalidKey, StorageError

# What tells nothing about models and data: probes, and what the server can do.
OPEN = frozenset(
    {"/", "/healthz", "/readyz", "/ping", "/version", "/v2", "/v2/health/live", "/v2/health/ready", "/openapi.json"}
    | {"/docs", "/docs/read", "/docs/licences", "/console/login", "/console/session", "/console/session/end"}
)
STATIC = "/console/static/"
PAGES = "/console"
ADMINISTRATOR = "FEWPASS_ADMIN_KEY"
NO_KEY = "a request without a key"
NOBODY: Mapping[str, str] = {}
MAX_VERIFIED = 1_000
ONCE = (b"authorization", b"x-api-key", b"host", b"content-encoding")


class Guard:
    """ASGI middleware: answers 401 without a valid key where one is needed, 403 if its role does not suffice, 429 if
    the key asks too often.

    All keys are in memory, by the SHA-256 of their token, and are read again when the registry's generation grows; so
    a revoked key is refused within the poll interval, and no request waits for the database. `generation` is that of the
    registry whose keys are held, or an older one. The predictor has a record of its own: what one of them has taken over,
    the other may have failed to.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.needs_keys = settings.needs_keys
        self.visitors = Visitors(settings)
        self.rates = None if settings.requests_per_s is None else RequestRates(settings.requests_per_s)
        self._fixed: dict[str, ApiKey] = {}
        if settings.admin_key is not None:
            administrator = ApiKey(ADMINISTRATOR, ADMINISTRATOR, Role.ADMIN, datetime.now(UTC))
            self._fixed[api_key_token_sha256(settings.admin_key.encode())] = administrator
        self._keys = self._fixed
        self.login = None if settings.oidc_issuer is None else CompanyLogin(settings)
        self.sessions = Sessions()
        self._control: Control | None = None
        self.generation: int | None = None
        self._lock = threading.Lock()
        self.roles: RouteRoles | None = None  # of the application's routes, once it has them all
        # Headers whose token was found valid: hashing it again costs as much as a look-up in a model. Python's own hash
        # of the header is keyed by a secret of the process, so timing tells nothing here either.
        self._verified: dict[bytes | None, ApiKey] = {}

    def needed_role(self, method: str, path: str) -> Role | None:
        """Return the role that a request needs; None if it is open to all."""
        if path in OPEN or (path.startswith(STATIC) and method in {"GET", "HEAD"}):
            return None
        return Role.ADMIN if self.roles is None else self.roles.needed(method, path)

    def load(self, control: Control) -> None:
        """Load the current keys from the control database."""
        with self._lock:  # or else one that has read earlier may write later
            self._control = control
            as_of = control_generation(control)  # before the keys: what changes in between is read again
            self._keys = api_keys_by_hash(control) | self._fixed
            self._verified = {}  # after the keys: what a request has just found among the old goes to the old dict
            self.generation = as_of

    def load_login(self) -> None:
        """Read the keys of the company's login if they are due; tokens are verified again after a change. Raises
        NotReady.
        """
        if self.login is not None and self.login.is_due() and self.login.load():
            self._verified = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on, or answer 401 or 403; not a coroutine, which would cost as much as the check."""
        if scope["type"] == "http":
            try:
                self.check(scope)
            except KeyNeeded as error:
                session_id = session_id_from_cookie(scope["fewpass.headers"])
                if session_id is None or self._control is None:
                    return _refuse(error, scope, receive, send)
                return self._by_session(session_id, self._control, scope, receive, send)
            except (InvalidKey, Forbidden, InvalidRequest, TooManyRequests) as error:
                return send_problem_body(error, scope, send)
        return self.app(scope, receive, send)

    async def _by_session(self, session_id: str, control: Control, scope: Scope, receive: Receive, send: Send) -> None:
        """Do as `__call__` for a request whose session cookie replaces a key."""
        try:
            key = await self._key_of(session_id, control, scope)
            self._admit(key, self.needed_role(scope["method"], get_route_path(scope)), scope)
        except (KeyNeeded, Forbidden, TooManyRequests, StorageError, TimeoutError) as error:
            await _refuse(error, scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _key_of(self, session_id: str, control: Control, scope: Scope) -> ApiKey:
        """Return the key of a session; KeyNeeded if session or key has ended, Forbidden if the request is not from a
        page of this server.
        """
        headers = scope["fewpass.headers"]
        check_session_csrf(scope["method"], headers)
        session = await self.sessions.session(control, session_id, request_origin(scope["scheme"], headers))
        key = None if session is None else self._keys.get(session.key_sha256)
        if session is None or key is None or not key.is_valid():
            raise KeyNeeded("The session has ended. Sign in again with an API key.")
        scope["fewpass.session"] = session.id_sha256
        return key

    def check(self, scope: Scope) -> None:
        """Check that this request may proceed; raises if it may not.

        Raises KeyNeeded or InvalidKey (401) if there is no key, or none that is valid; Forbidden (403) if the key's role does
        not suffice, or a foreign web page sends the request; TooManyRequests (429) if the key has made more requests
        than it may.
        """
        headers = scope["fewpass.headers"]
        known = self._verified.get(headers.get(b"authorization"))
        if len(headers) != len(scope["headers"]):
            check_single_headers(scope["headers"])
        if known is not None and scope["fewpass.is_hot"] and known.is_valid():
            self.visitors.check_known_host(headers.get(b"host"))
            self._admit(known, Role.PREDICT, scope)
            return
        token = api_token_from_headers(headers)
        if token is None and not self.needs_keys:
            self.visitors.check(scope["method"], scope["scheme"], headers)
            scope["fewpass.role"] = Role.ADMIN
            if not scope["fewpass.is_hot"]:
                set_actor(_actor(NO_KEY, Role.ADMIN, scope))
            return
        self.visitors.check_host(headers.get(b"host"))
        needed = self.needed_role(scope["method"], get_route_path(scope))
        if needed is None:
            return
        if token is None:
            raise KeyNeeded(
                "This server requires an API key: send the header 'Authorization: Bearer fp_…'. "
                "An administrator creates one with `fewpass keys create`."
            )
        verified = self._verified
        key = self.key(token)
        header = headers.get(b"authorization", b"")
        if header.endswith(token) and len(verified) < MAX_VERIFIED:  # and not a proxy's own
            verified[header] = key
        self._admit(key, needed, scope)

    def attribute(self, key: ApiKey, scope: Scope) -> None:
        """Attribute the acts of this request to a key in the audit log."""
        identity = key.identity if isinstance(key, LoginKey) else {}
        set_actor(_actor(f"key {key.name}", key.role, scope, identity))

    def _admit(self, key: ApiKey, needed: Role | None, scope: Scope) -> None:
        """Record the caller; Forbidden if the role does not suffice, TooManyRequests if the key asks too often."""
        scope["fewpass.key"] = key.name
        if self.rates is not None:
            scope["fewpass.rate_headers"] = self.rates.headers(None)
            scope["fewpass.rate_headers"] = self.rates.headers(self.rates.take(key.name))
        scope["fewpass.role"] = key.role
        if not scope["fewpass.is_hot"]:
            self.attribute(key, scope)
        if needed is not None and not key.role.covers(needed):
            raise Forbidden(
                f"Key {key.name!r} has the role {key.role}; this call needs {needed}. Ask an administrator for a key with that role.",
                key=key.name,
                role=str(key.role),
                needed=str(needed),
            )

    def key(self, token: bytes) -> ApiKey:
        """Return the valid key of a token; InvalidKey without one, Forbidden if the company's login gives its holder no
        role.
        """
        if self.login is not None and self.login.is_token(token):
            holder = self.login.key(token)
            if holder is None:
                raise Forbidden("Your login has no role on this server. Ask an administrator for one.")
            return holder
        # Looked up by hash, so that the time it takes tells nothing about any token.
        key = self._keys.get(api_key_token_sha256(token))
        if key is None or not key.is_valid():
            raise InvalidKey
        return key


def _actor(name: str, role: Role, scope: Scope, identity: Mapping[str, str] = NOBODY) -> Actor:
    """Return the caller for the audit log."""
    client = scope.get("client")
    return Actor(name, role.value, "" if client is None else str(client[0]), REQUEST_ID.get(), identity)


def _refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
    """Answer with the problem; redirect a person who wants a page to the login page."""
    is_page = scope["path"] == PAGES or scope["path"].startswith(f"{PAGES}/")
    accepts_html = b"text/html" in scope["fewpass.headers"].get(b"accept", b"")
    if isinstance(error, KeyNeeded) and is_page and accepts_html and scope["method"] in {"GET", "HEAD"}:
        page = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return RedirectResponse(f"{PAGES}/login?next={quote(page, safe='')}", 303)(scope, receive, send)
    return send_problem_body(error, scope, send)


def api_token_from_headers(headers: dict[bytes, bytes]) -> bytes | None:
    """Return the token of a request; empty if its header holds no token, None without a header."""
    value = headers.get(b"authorization")
    if value is not None and value[:7].lower() == b"bearer ":
        return value[7:].strip()
    # A proxy may want an Authorization of its own; the key is then in the other header.
    return headers.get(b"x-api-key", None if value is None else b"")


def check_single_headers(raw: list[tuple[bytes, bytes]]) -> None:
    """Refuse a repeated header that identifies the caller or the host, or says how to read the body, since programs
    disagree on which to use (InvalidRequest).
    """
    names = [name for name, _ in raw]
    for name in ONCE:
        if names.count(name) > 1:
            raise InvalidRequest(
                f"The request has two headers {name.decode().title()}. Send one.", header=name.decode()
            )


def check_api_keys_exist(settings: Settings, control: Control) -> None:
    """Refuse to listen on an address that others can reach while no key exists (KeyNeeded)."""
    if not settings.needs_keys or settings.admin_key is not None or api_keys_by_hash(control):
        return
    raise KeyNeeded(
        f"A server on {settings.host!r} needs API keys, and the workspace has none. Create the first with "
        f"`fewpass keys create admin --role admin --workspace {settings.workspace}`, or set {ADMINISTRATOR}, "
        "or listen on 127.0.0.1."
    )


SAFE = frozenset({"GET", "HEAD"})  # a page may send them; the browser does not let it read the answer
MAX_SEEN = 100

Headers = list[tuple[bytes, bytes]]

_ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_POLICY = b"content-security-policy"
# Answers are data: whatever they hold, a browser that shows one loads and runs nothing. Pictures bring their own styles.
_STRICT = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; sandbox"
# No cache keeps them: one between may not know that X-API-Key says who may read an answer, and browsers keep files.
_DATA: Headers = [*_ALWAYS, (_POLICY, _STRICT), (b"cache-control", b"no-store")]
# Pages run our own files, ask this server, and nothing else: no script or style stands in them.
_OWN = b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
_OWN += b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
_CONSOLE: Headers = [*_ALWAYS, (_POLICY, _OWN), (b"cross-origin-opener-policy", b"same-origin")]
_PAGES = ("/docs", "/console")


def security_headers(path: str) -> Headers:
    """Return the security headers of a path, which restrict what browsers may do with the answer."""
    is_page = any(path == page or path.startswith(f"{page}/") for page in _PAGES)
    return _CONSOLE if is_page else _DATA


class Visitors:
    """Distinguishes requests of foreign pages from all others, by the addresses on which the settings say the server
    listens.
    """

    def __init__(self, settings: Settings) -> None:
        self._names = frozenset(name.lower().encode() for name in settings.trusted_hosts)
        self._known = {b"localhost", settings.host.lower().encode()} | self._names
        # With keys, a name that somebody else gave this machine opens nothing, so it matters only if names are listed.
        self._checks_host = bool(settings.trusted_hosts) or not settings.needs_keys
        self._seen: set[bytes | None] = set()

    def check(self, method: str, scheme: str, headers: dict[bytes, bytes]) -> None:
        """Refuse a request sent by a foreign page or under a foreign host name (Forbidden)."""
        host = headers.get(b"host")
        is_of_browser = b"sec-fetch-site" in headers or b"origin" in headers
        if is_of_browser and method not in SAFE and self._is_foreign(scheme, host or b"", headers):
            raise Forbidden(
                "Pages of other origins may not change anything or request predictions. Send the request without a browser, or from a "
                "page of this server."
            )
        self.check_known_host(host)

    def check_known_host(self, host: bytes | None) -> None:
        """Check the Host header as `check_host` does, faster for one seen before."""
        if host not in self._seen:
            self.check_host(host)
            if len(self._seen) < MAX_SEEN:
                self._seen.add(host)

    def check_host(self, host: bytes | None) -> None:
        """Refuse a Host that is neither the server's address nor a trusted name (Forbidden); programs may omit it."""
        if host is None:
            return
        name = host_without_port(host)
        if not name:
            raise Forbidden("The header Host is empty. Set it, or leave the header out (HTTP/1.0).")
        if not self._checks_host:
            return
        if name not in self._known and not is_loopback(name.strip(b"[]").decode("latin-1")):
            text = host.decode("latin-1")
            raise Forbidden(
                f"This server does not answer as {text!r}. Use localhost or the address that it listens on, or add "
                "the host to FEWPASS_TRUSTED_HOSTS.",
                host=text,
            )

    def _is_foreign(self, scheme: str, host: bytes, headers: dict[bytes, bytes]) -> bool:
        """Return whether the request comes from a foreign page: new browsers say so, all send the page's origin."""
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
        is_trusted = kind == b"https" and host_without_port(place) in self._names
        return not (is_trusted and _plain(kind, place) == ours)


def _plain(scheme: bytes, place: bytes) -> bytes:
    """Remove the default port of the scheme from a host and port."""
    return place.removesuffix({b"http": b":80", b"https": b":443"}.get(scheme, b":"))


def host_without_port(host: bytes) -> bytes:
    """Return the lower-case name in a Host header, without the port."""
    name, separator, port = host.lower().rpartition(b":")
    with contextlib.suppress(ValueError):
        ipaddress.IPv6Address(host.decode("latin-1"))  # without brackets, so that nothing of it is a port
        return host.lower()
    return name if separator and port.isdigit() else host.lower()


BURST_S = 1.0  # what a key has left unused of this time it may use at once
MAX_KEYS = 10_000


class RequestRates:
    """Request rate of each key by the generic cell rate algorithm, which stores a single time per key.

    `per_s` requests per second of one key are allowed; as many may come at once, and one at least.

    References
    ----------
    ITU-T I.371 (2004), section 5.3: https://www.itu.int/rec/T-REC-I.371
    """

    def __init__(self, per_s: float) -> None:
        self.per_s, self.gap_s = per_s, 1 / per_s
        self._due: dict[str, float] = {}  # when the requests so far would have come, had they kept the gap

    def take(self, key: str) -> int:
        """Count a request, and return how many more the key may make at once; TooManyRequests, uncounted, if it comes too early."""
        now = time.monotonic()
        due = max(self._due.get(key, now), now) + self.gap_s
        early_s = due - now - max(BURST_S, self.gap_s)
        if early_s > 1e-9:
            raise TooManyRequests(
                f"Key {key!r} may send {self.per_s:g} requests per second (FEWPASS_REQUESTS_PER_S). Try again in {early_s:.2g} s.",
                key=key,
                retry_after_s=round(early_s, 3),
            )
        if len(self._due) >= MAX_KEYS:  # many keys came and went: those that wait for nothing are forgotten
            self._due = {name: moment for name, moment in self._due.items() if moment > now}
        self._due[key] = due
        return int((max(BURST_S, self.gap_s) - (due - now)) / self.gap_s + 1e-9)

    def headers(self, n_left: int | None) -> list[tuple[bytes, bytes]]:
        """The fields RateLimit-Policy and RateLimit of an answer; None left for a request that came too early.

        References
        ----------
        draft-ietf-httpapi-ratelimit-headers-10.
        """
        window_s = max(1, math.ceil(self.gap_s))
        quota = max(1, int(self.per_s * window_s))
        left = 0 if n_left is None else min(n_left, quota)
        reset = f";t={window_s}" if left == 0 else ""
        policy, rest = f'"key";q={quota};w={window_s}', f'"key";r={left}{reset}'
        return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", rest.encode())]
