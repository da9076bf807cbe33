"""Tokens of a company's login (OpenID Connect) beside API keys: JSON Web Tokens, verified offline with the issuer's
public keys.

PyJWT verifies; nothing here does. Only RS256 and ES256 are accepted: a token cannot choose `none`, nor turn a public key into
a shared secret.

References
----------
RFC 7519 (JWT), RFC 7517 (JWK), RFC 8725 (best current practices). OpenID Connect Core 1.0, section 3.1.3.7.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from service.requests.problems import NotReady
from service.settings import Settings
from storage.control.api_keys_and_sessions import ApiKey, Role
from storage.errors import InvalidKey

if TYPE_CHECKING:
    from jwt import PyJWK

ALGORITHMS = ("RS256", "ES256")
CLAIMS = ("exp", "iat", "iss", "aud", "sub")
LEEWAY_S = 30.0  # by how much clocks may differ
LONGEST_TOKEN = 16 << 10
REFRESH_S, RETRY_S = 300.0, 10.0
FETCH_TIMEOUT_S, LARGEST_JWKS = 5.0, 1 << 20
LONGEST_NAME, LONGEST_SUBJECT = 100, 80
LONGEST_STORED = 255  # OpenID Connect Core 1.0, section 2


@dataclass(frozen=True)
class LoginKey(ApiKey):
    """The holder of a token, as a key whose name contains the subject: holders may choose the same user name."""

    identity: Mapping[str, str] = field(default_factory=dict)  # issuer and subject


class CompanyLogin:
    """Verifier of the tokens of one issuer.

    `load` reads the issuer's keys and may wait for the network; `key` never does. A token signed with an unknown key is
    refused, and asks for the keys to be read again soon, so a rotation of keys is followed within `RETRY_S`.

    Raises NotReady if PyJWT is not installed.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            import jwt
        except ImportError:
            message = (
                "FEWPASS_OIDC_ISSUER is set, and PyJWT is not installed: pip install 'fewpass[oidc]', or unset it."
            )
            raise NotReady(message) from None
        self._jwt = jwt
        assert settings.oidc_jwks is not None
        self._source, self._issuer, self._audience = settings.oidc_jwks, settings.oidc_issuer, settings.oidc_audience
        self._claim = settings.oidc_role_claim.split(".")
        self._roles = {role.value: role for role in Role} | {
            name: Role(role) for name, role in settings.oidc_roles.items()
        }
        self._keys: dict[str, PyJWK] = {}
        self._due = 0.0
        self._loaded = -RETRY_S
        self._lock = threading.Lock()

    @staticmethod
    def is_token(token: bytes) -> bool:
        """Return whether a token has the form of a JSON Web Token; API keys have no dots."""
        return token.count(b".") == 2

    def is_due(self) -> bool:
        """Return whether `load` is due."""
        return time.monotonic() >= self._due

    def load(self) -> bool:
        """Read the issuer's keys and return whether they changed. If they cannot be read, the former keys stay
        (NotReady).
        """
        with self._lock:
            self._loaded = time.monotonic()
            self._due = self._loaded + RETRY_S
            try:
                known = self._known(json.loads(self._read()))
            except (OSError, ValueError, RecursionError, httpx.HTTPError, self._jwt.PyJWTError) as error:
                raise NotReady(f"The keys of the issuer cannot be read from {self._source}: {error}") from error
            has_changed = known.keys() != self._keys.keys()
            self._keys, self._due = known, self._loaded + REFRESH_S
            return has_changed

    def _read(self) -> str:
        if "://" not in self._source:
            return Path(self._source).read_text(encoding="utf-8")
        return asyncio.run(self._fetch()).decode()

    async def _fetch(self) -> bytes:
        """Return the answer of the issuer, whole within `FETCH_TIMEOUT_S`: whoever waits for one that comes byte by byte
        follows no revoked key meanwhile.
        """
        text = b""
        try:
            async with (
                asyncio.timeout(FETCH_TIMEOUT_S),
                httpx.AsyncClient(timeout=FETCH_TIMEOUT_S) as client,
                client.stream("GET", self._source, follow_redirects=False) as answer,
            ):
                answer.raise_for_status()
                async for part in answer.aiter_bytes():
                    text += part
                    if len(text) > LARGEST_JWKS:
                        raise ValueError(f"the answer is longer than {LARGEST_JWKS} bytes")
        except TimeoutError:
            raise TimeoutError(f"no whole answer came within {FETCH_TIMEOUT_S:g} s") from None
        return text

    def _known(self, read: object) -> dict[str, PyJWK]:
        """Return the usable keys of a JWK set by their ids; one of another kind does not hide the others. Raises
        ValueError.
        """
        own = read.get("keys") if isinstance(read, dict) else None
        if not isinstance(own, list):
            raise ValueError("they are no JSON object with a list 'keys'")  # noqa: TRY004
        known = {}
        for one in own:
            if not isinstance(one, dict) or not isinstance(one.get("kid"), str):
                continue
            try:
                key = self._jwt.PyJWK.from_dict(one)
            except (self._jwt.PyJWTError, ValueError, TypeError, NotImplementedError):
                continue
            if key.algorithm_name in ALGORITHMS:
                known[one["kid"]] = key
        if not known:
            raise ValueError(f"none of them has a 'kid' and is of {' or '.join(ALGORITHMS)}")
        return known

    def key(self, token: bytes) -> ApiKey | None:
        """Return the holder of a token as a key that expires with it; None if the holder has no role here. Raises
        InvalidKey.
        """
        if len(token) > LONGEST_TOKEN:
            raise InvalidKey
        try:
            header = self._jwt.get_unverified_header(token)
            key = self._keys.get(header.get("kid", ""))
            if key is None:
                self._due = min(self._due, self._loaded + RETRY_S)
                raise InvalidKey
            if header.get("alg") != key.algorithm_name:
                raise InvalidKey
            claims: dict[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": list(CLAIMS)},
            )
        except self._jwt.PyJWTError:
            raise InvalidKey from None
        role = self._role(claims)
        if role is None:
            return None
        subject, chosen = claims["sub"], claims.get("preferred_username")
        login = f"login {_short(subject)}"
        name = f"{_printable(chosen)} ({login})" if isinstance(chosen, str) and chosen else login
        try:
            until = datetime.fromtimestamp(float(claims["exp"]) + LEEWAY_S, UTC)
        except (OverflowError, ValueError, OSError):  # further off than a clock can tell
            raise InvalidKey from None
        identity = {"issuer": str(self._issuer), "subject": _short(subject, LONGEST_STORED)}
        return LoginKey(f"oidc {_short(subject)}", name, role, datetime.now(UTC), until, identity=identity)

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        """Return the most powerful role that the token's claim names; None without one."""
        value: Any = claims
        for part in self._claim:
            value = value.get(part) if isinstance(value, Mapping) else None
        names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        found = [self._roles[name] for name in names if isinstance(name, str) and name in self._roles]
        return max(found, key=list(Role).index, default=None)


def _short(subject: str, most: int = LONGEST_SUBJECT) -> str:
    """Return a subject if it can be shown and has at most so many characters, else its SHA-256."""
    if len(subject) <= most and subject.isprintable():
        return subject
    return f"sha256:{hashlib.sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _printable(name: str) -> str:
    """Return a holder's name as logs and the console can show it: their provider may let them choose it."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name[:LONGEST_NAME]
    )
