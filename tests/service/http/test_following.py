"""How a serving process takes over what has changed: keys and models apart, and what is damaged costs itself only."""

from starlette.testclient import TestClient

from learners.registry.model_kinds import add_derived_arrays
from service import product
from service.http import security
from service.http.app import Application, create_app
from service.serving.predictor import Predictor
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import revoke_api_key
from storage.errors import ControlUnavailable
from storage.models.model_file import rebuild_compiled
from tests.processes import wait_for
from tests.service.asking import learn


def trained(root, table, names):
    settings = Settings(workspace=root / "workspace", require_keys=True, warm_up=False, generation_poll_s=0.01)
    with Workspace(settings) as workspace:
        for name in names:
            learn(workspace, table, name, holdout=0)
    return settings


def truncate(path):
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[: len(whole) // 2])


def test_a_key_that_could_not_be_read_is_read_again(tmp_path, monkeypatch):
    """Also if the models were taken over meanwhile."""
    settings = Settings(workspace=tmp_path, require_keys=True, warm_up=False, generation_poll_s=0.01)
    with Workspace(settings) as workspace:
        token = product.create_key(workspace, "guest", "read")[1]
    app = create_app(settings)
    assert isinstance(app, Application)
    headers, failures, read = {"authorization": f"Bearer {token}"}, [], security.api_keys_by_hash
    with TestClient(app) as client:
        assert client.get("/v1/models", headers=headers).status_code == 200

        def fail(control):
            failures.append(app.state.predictor.generation)
            raise ControlUnavailable("it hangs")

        monkeypatch.setattr(security, "api_keys_by_hash", fail)
        revoke_api_key(app.state.workspace.control, "guest")
        app.state.predictor.refresh()  # as a route does that moves an alias
        wait_for(lambda: failures)
        wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
        monkeypatch.setattr(security, "api_keys_by_hash", read)
        wait_for(lambda: client.get("/v1/models", headers=headers).status_code == 401)


def test_a_damaged_version_costs_itself_and_no_other(tmp_path, weather_files):
    settings = trained(tmp_path, weather_files[0], ["a", "b", "a", "b"])
    with Workspace(settings) as workspace:
        for name in ("a", "b"):
            product.set_alias(workspace, name, "champion", 1)
        predictor = Predictor(workspace.control)
        references = ["a", "a@champion", "a@1", "b"]
        assert [predictor.resolve(reference).version for reference in references] == [1] * 4
        path = product.find_version(workspace, "a@2").arrow_path
        truncate(path)
        for name in ("a", "b"):
            product.set_alias(workspace, name, "champion", 2)
        assert predictor.refresh() and not predictor.refresh()
        assert [predictor.served(reference).version for reference in references] == [1, 1, 1, 2]
        assert predictor.damaged.keys() == {"a", "a@champion"} and str(path) in predictor.damaged["a"]
        rebuild_compiled(path.with_suffix(".duckdb"), add_derived_arrays)
        assert predictor.refresh() and not predictor.damaged  # without a change of the registry
        assert predictor.served("a").version == 2


def test_a_damaged_version_is_told_and_keys_are_followed(tmp_path, weather_files):
    settings = trained(tmp_path, weather_files[0], ["a", "a"])
    with Workspace(settings) as workspace:
        token = product.create_key(workspace, "guest", "train")[1]
        product.set_alias(workspace, "a", "champion", 1)
        truncate(product.find_version(workspace, "a@2").arrow_path)
    app = create_app(settings)
    headers = {"authorization": f"Bearer {token}"}
    with TestClient(app) as client:

        def version():
            return int(client.post("/v1/models/a/predict", json={"records": [{}]}, headers=headers).json()["version"])

        assert version() == 1
        assert client.put("/v1/models/a/aliases/champion", json={"version": 2}, headers=headers).status_code == 200
        wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
        assert version() == 1 and "a@2" not in client.get("/readyz").text
        revoke_api_key(app.state.workspace.control, "guest")
        wait_for(lambda: client.get("/v1/models", headers=headers).status_code == 401)
