"""Tokens of a company's login: own issuer with own keys, offline. What is no valid token of it opens nothing."""

import base64
import contextlib
import hashlib
import json
import socket
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ValidationError
from starlette.testclient import TestClient

from service.http import company_login
from service.http.app import create_app
from service.http.company_login import CompanyLogin
from service.requests.problems import NotReady
from service.settings import Settings
from storage.errors import InvalidKey
from tests.processes import wait_for
from tests.support.http import problem

ISSUER, AUDIENCE = "https://login.example/realms/main", "fewpass"
KEYS = {
    "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
}
ALGORITHMS = {"rsa": "RS256", "ec": "ES256"}
LONE = b"\xed\xa0\x80"  # a lone surrogate, as Python encodes it


def jwks(**keys):
    def public(name, key):
        algorithm = jwt.get_algorithm_by_name(ALGORITHMS[name.split("-")[0]])
        return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": name, "alg": ALGORITHMS[name.split("-")[0]]}

    return json.dumps({"keys": [public(name, key) for name, key in keys.items()]})


def token(kid="rsa", key=None, algorithm=None, **claims):
    now = int(time.time())
    own = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-17", "iat": now, "exp": now + 60, "roles": ["train"]} | claims
    own = {name: value for name, value in own.items() if value is not None}
    return jwt.encode(own, key or KEYS[kid], algorithm or ALGORITHMS[kid], headers={"kid": kid})


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "jwks.json").write_text(jwks(**KEYS))
    return Settings(
        workspace=tmp_path / "workspace",
        require_keys=True,
        warm_up=False,
        generation_poll_s=0.05,
        oidc_issuer=ISSUER,
        oidc_audience=AUDIENCE,
        oidc_jwks=str(tmp_path / "jwks.json"),
        oidc_roles={"data-science": "predict"},
    )


@pytest.fixture
def login(settings):
    verifier = CompanyLogin(settings)
    verifier.load()
    return verifier


@pytest.mark.parametrize("kid", KEYS)
def test_a_valid_token_is_its_holder_with_the_role_of_the_claim(login, kid):
    key = login.key(token(kid, preferred_username="ana").encode())
    assert (key.name, str(key.role)) == ("ana (login u-17)", "train")
    assert key.is_valid() and key.expires_at is not None


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["read", "admin"], "admin"), ("predict", "predict"), (["data-science"], "predict"), (["other"], None), ([], None),
        (None, None), ({"a": 1}, None), ([1, None], None),
    ],
)  # fmt: skip
def test_the_most_powerful_known_role_counts(login, roles, expected):
    key = login.key(token(roles=roles).encode())
    assert (key and str(key.role)) == expected


def test_a_claim_may_lie_within_objects(settings):
    verifier = CompanyLogin(settings.model_copy(update={"oidc_role_claim": "realm_access.roles"}))
    verifier.load()
    assert str(verifier.key(token(realm_access={"roles": ["read"]}).encode()).role) == "read"
    assert verifier.key(token(realm_access=["read"]).encode()) is None


def shared_secret_token():
    """HS256, signed with the public key as the secret."""
    public = KEYS["rsa"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    parts = token().split(".")
    header = {"alg": "HS256", "typ": "JWT", "kid": "rsa"}
    signed = f"{base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip('=')}.{parts[1]}"
    code = hmac.HMAC(pem, hashes.SHA256())
    code.update(signed.encode())
    return f"{signed}.{base64.urlsafe_b64encode(code.finalize()).decode().rstrip('=')}"


WRONG = {
    "of an end that no clock has": lambda: token(exp=10**18),
    "of an end that is no double": lambda: token(exp=10**400),
    "expired": lambda: token(exp=int(time.time()) - 120),
    "without an end": lambda: token(exp=None),
    "without a subject": lambda: token(sub=None),
    "of the future": lambda: token(iat=int(time.time()) + 3600, nbf=int(time.time()) + 3600),
    "another audience": lambda: token(aud="other"),
    "without an audience": lambda: token(aud=None),
    "another issuer": lambda: token(iss="https://evil.example"),
    "another key": lambda: token(key=rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "an unknown key id": lambda: jwt.encode({"sub": "u"}, KEYS["rsa"], "RS256", headers={"kid": "other"}),
    "no signature": lambda: jwt.encode({"sub": "u"}, None, "none", headers={"kid": "rsa"}),
    "a public key as secret": shared_secret_token,
    "another algorithm": lambda: token(algorithm="RS512"),
    "a changed body": lambda: ".".join(
        [token().split(".")[0], token(roles=["admin"]).split(".")[1], token().split(".")[2]]
    ),
    "no token": lambda: "a.b.c",
    "a long one": lambda: token(filler="x" * 20_000),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_valid_token_is_refused(login, what):
    with pytest.raises(InvalidKey, match=r"is not valid\. Ask an administrator"):
        login.key(WRONG[what]().encode())


def test_clocks_may_differ_a_little(login):
    assert login.key(token(exp=int(time.time()) - 10).encode()) is not None
    assert login.key(token(iat=int(time.time()) + 10).encode()) is not None


def test_a_rotation_of_keys_is_followed(login, settings, monkeypatch):
    new = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(InvalidKey, match=r"is not valid\. Ask an administrator"):
        login.key(token("rsa-2", new, "RS256").encode())
    (settings.workspace.parent / "jwks.json").write_text(jwks(**{"rsa-2": new}))
    assert login.load()
    assert login.key(token("rsa-2", new, "RS256").encode()) is not None
    with pytest.raises(InvalidKey, match=r"is not valid\. Ask an administrator"):
        login.key(token().encode())
    (settings.workspace.parent / "jwks.json").write_text("{")
    with pytest.raises(NotReady, match="cannot be read"):
        login.load()
    assert login.key(token("rsa-2", new, "RS256").encode()) is not None, "the former keys stay"


ODD_KEYS = [
    "[]", "null", "[" * 50_000, '{"keys": "rsa"}', '{"keys": {"kid": "rsa"}}', '{"keys": []}',
    '{"keys": [1, {"kid": ["rsa"]}, {"kid": "none", "kty": "RSA", "alg": "none"}, {"kid": "oct", "kty": "oct", "k": "AAAA"}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_KEYS, ids=range(len(ODD_KEYS)))
def test_what_is_no_set_of_keys_is_refused_in_words(login, settings, text):
    (settings.workspace.parent / "jwks.json").write_text(text)
    with pytest.raises(NotReady, match=r"The keys of the issuer cannot be read from .*jwks\.json"):
        login.load()
    assert login.key(token().encode()) is not None, "the former keys stay"


def test_an_odd_key_does_not_hide_the_others(login, settings):
    own = json.loads(jwks(**KEYS))
    own["keys"] += json.loads(ODD_KEYS[-1])["keys"] + [own["keys"][0] | {"kid": "list", "alg": "none"}]
    (settings.workspace.parent / "jwks.json").write_text(json.dumps(own))
    login.load()
    assert login.key(token("ec").encode()) is not None


def test_keys_that_come_byte_by_byte_are_not_waited_for(settings, monkeypatch):
    """Each byte comes in time, the whole answer does not."""
    monkeypatch.setattr(company_login, "FETCH_TIMEOUT_S", 0.2)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nx-long: ")
                    while not ended.wait(0.02):
                        connection.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
        try:
            with pytest.raises(NotReady, match=r"no whole answer came within 0\.2 s"):
                CompanyLogin(settings.model_copy(update={"oidc_jwks": url})).load()
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "a\nb\x1b[31m\u202e"}, "a\ufffdb\ufffd[31m\ufffd (login u-17)"),
        ({"preferred_username": "\ud800"}, "\ufffd (login u-17)"),
        ({"sub": "\ud800"}, f"login sha256:{hashlib.sha256(LONE).hexdigest()}"),
        ({"preferred_username": ["ana"]}, "login u-17"), ({"preferred_username": ""}, "login u-17"),
    ],
)  # fmt: skip
def test_names_of_holders_can_be_shown(login, claims, name):
    key = login.key(token(**claims).encode())
    assert key.name == name
    assert key.id.isprintable()


def test_two_holders_of_one_name_stay_apart_in_the_audit_log(settings):
    """Also if their subjects agree in all characters that are shown, or a user name imitates another's subject."""
    holders = [{"sub": "u-1"}, {"sub": "u-2"}, {"sub": "x" * 254 + "1"}, {"sub": "x" * 254 + "2"}]
    holders = [{"preferred_username": "ana"} | one for one in holders]
    holders.append({"preferred_username": "ana (login u-1)", "sub": "u-3"})
    with TestClient(create_app(settings.model_copy(update={"admin_key": "a-key-of-24-characters-x"}))) as client:

        def ask(method, path, text, **more):
            return client.request(method, path, headers={"authorization": f"Bearer {text}"}, **more)

        wait_for(lambda: ask("GET", "/v1/models", token()).status_code == 200)
        for k, holder in enumerate(holders):
            made = ask("POST", "/v1/keys", token(roles=["admin"], **holder), json={"name": f"k{k}", "role": "read"})
            assert made.status_code == 201
        lines = ask("GET", "/v1/audit", "a-key-of-24-characters-x").json()["items"]
    made = [line for line in lines if line["action"] == "key created"][::-1]
    assert len({line["actor"] for line in made}) == len(holders)
    assert [(line["detail"]["issuer"], line["detail"]["subject"]) for line in made] == [
        (ISSUER, holder["sub"]) for holder in holders
    ]


def test_tokens_stand_beside_api_keys(settings):
    with TestClient(create_app(settings.model_copy(update={"admin_key": "a-key-of-24-characters-x"}))) as client:

        def ask(text, path="/v1/models"):
            return client.get(path, headers={"authorization": f"Bearer {text}"})

        wait_for(lambda: ask(token()).status_code == 200)
        assert ask("a-key-of-24-characters-x", "/v1/audit").status_code == 200
        problem(ask(token(), "/v1/audit"), 403)
        assert "no role" in problem(ask(token(roles=[])), 403)["detail"]
        problem(ask(token(aud="other")), 401)
        refused = client.post("/console/session", data={"key": token()}, headers={"sec-fetch-site": "same-origin"})
        assert "API key" in problem(refused, 403)["detail"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oidc_issuer": ISSUER}, "FEWPASS_OIDC_AUDIENCE and FEWPASS_OIDC_JWKS"),
        ({"oidc_jwks": "http://login.example/jwks"}, "https://"),
        ({"oidc_roles": "x"}, "JSON object"),
    ],
)
def test_half_a_login_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Settings(**given)
