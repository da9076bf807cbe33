"""What each role may do, told for every route: whatever the things in its path are called, and wherever it is mounted."""

from typing import NamedTuple
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from service import product
from service.http.app import Application, create_app
from service.http.security import OPEN
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from tests.support.http import problem

# As docs/how-to/security.md says; what is not here needs `read` to be looked at and `train` to be changed.
PREDICT = {
    *(f"POST /v1/models/{{name}}/{verb}" for verb in ("predict", "explain", "query", "score", "impute", "whatif")),
    "POST /v2/models/{name}/infer",
    "POST /v2/models/{name}/versions/{version}/infer",
    "POST /invocations",
    "POST /v1/models/{reference}/labels",
}
ADMIN = {
    "GET /v1/audit",
    "GET /v1/keys",
    "POST /v1/keys",
    "DELETE /v1/keys/{name}",
    "DELETE /v1/datasets/{name}",
    "DELETE /v1/datasets/{name}/files/{file}",
    "POST /v1/datasets/{name}/rules/withdraw",
    "POST /v1/models/{name}/rules/withdraw",
    "DELETE /v1/models/{name}",
    "DELETE /v1/models/{name}/versions/{version}",
    "POST /v1/models/{name}/prune",
    "PUT /v1/models/{name}/retention",
    "POST /v1/models/{name}/import",
    "GET /v1/webhooks",
    "GET /v1/webhooks/{webhook}/deliveries",
    "POST /v1/webhooks",
    "POST /v1/webhooks/{webhook}/test",
    "DELETE /v1/webhooks/{webhook}",
}
READ = {"POST /v1/receipts/verify"}  # which stores nothing
# What ends or is a route elsewhere, and what the routing takes although it is no such text.
TRAIN = {
    "GET /v1/jobs/{job_id}/output",
    "GET /v1/models/{reference}/monitoring/slices",
    "GET /v1/datasets/{name}/profile",
    "GET /console/data/{name}/rows",
}
NAMES = "predict explain query score impute output infer invocations import prune retention events export keys"
ODD_NAMES = ["versions", "healthz", "docs", "x\n", "predict\n", "a@b", "v1"]


class House(NamedTuple):
    """An application that needs keys, and one key for each role."""

    app: Application
    client: TestClient
    tokens: dict[Role, str]

    def operations(self):
        paths = self.app.openapi()["paths"]
        return [(method.upper(), path) for path, operations in paths.items() for method in operations]

    def ask(self, role, method, path):
        headers = {"authorization": f"Bearer {self.tokens[role]}"} if role else {}
        answer = self.client.request(method, quote(path), headers=headers, follow_redirects=False)
        assert answer.status_code < 400 or problem(answer, answer.status_code)
        return answer.status_code


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    settings = Settings(workspace=tmp_path_factory.mktemp("house") / "workspace", require_keys=True, warm_up=False)
    with Workspace(settings) as workspace:
        tokens = {role: product.create_key(workspace, role.value, role)[1] for role in Role}
    app = create_app(settings)
    assert isinstance(app, Application)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield House(app, client, tokens)


def documented_role(method, path):
    if path in OPEN:
        return None
    if f"{method} {path}" in PREDICT | ADMIN:
        return Role.PREDICT if f"{method} {path}" in PREDICT else Role.ADMIN
    is_read = f"{method} {path}" in READ or (method == "GET" and f"{method} {path}" not in TRAIN)
    return Role.READ if is_read else Role.TRAIN


def test_each_role_may_do_on_every_route_what_is_documented_and_nothing_more(house):
    operations, document = house.operations(), house.app.openapi()
    assert {f"{method} {path}" for method, path in operations} >= PREDICT | ADMIN
    assert set(document["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    for method, path in operations:
        needed, operation = documented_role(method, path), document["paths"][path][method.lower()]
        assert operation.get("x-fewpass-role") == (str(needed) if needed else None), path
        assert ("401" in operation["responses"]) == (needed is not None), path
        asked = path.replace("{", "").replace("}", "")  # there is nothing of such a name, so that nothing is done
        assert (house.ask(None, method, asked) == 401) == (needed is not None), (method, path)
        for role in Role:
            is_refused = house.ask(role, method, asked) == 403
            assert is_refused == (needed is not None and not role.covers(needed)), (role, method, path)


@pytest.mark.parametrize("name", [*NAMES.split(), *ODD_NAMES])
def test_what_things_are_called_gives_no_rights(house, name):
    for method, path in house.operations():
        parts = path.split("/")
        for place, part in enumerate(parts):
            if part.startswith("{"):
                named = "/".join(name if k == place else "x" if p[:1] == "{" else p for k, p in enumerate(parts))
                assert house.app.guard.needed_role(method, named) == documented_role(method, path), (method, named)


def test_a_line_break_that_the_routing_overlooks_opens_nothing(house):
    for method, path in house.operations():
        needed = documented_role(method, path) or Role.READ
        asked = path.replace("{", "").replace("}", "") + "\n"
        for role in Role:
            assert role.covers(needed) or house.ask(role, method, asked) == 403, (role, method, path)


def test_below_a_mount_roles_are_the_same(house):
    with TestClient(Starlette(routes=[Mount("/below", house.app)])) as client:
        for role, status in ((Role.TRAIN, 403), (Role.ADMIN, 200)):
            headers = {"authorization": f"Bearer {house.tokens[role]}"}
            assert client.get("/below/v1/keys", headers=headers).status_code == status
