"""What stands in deploy/: manifests that Kubernetes takes, of settings, commands and probes that there are."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from service.cli import app
from service.http.security import OPEN
from service.settings import SECRETS, Settings, unknown_setting_warnings

DEPLOY = Path(__file__).parent.parent / "deploy"
KUBERNETES = "1.37"
FOLDERS = sorted((DEPLOY / "kubernetes").iterdir())


of_each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
PATHS = f"{os.environ['PATH']}:/usr/sbin"  # nginx lies where only root looks


def manifests(folder, kind=None):
    """Every object of a folder, the kustomization apart; or those of a kind."""
    names = read(folder)["resources"]
    found = [each for name in names for each in yaml.safe_load_all((folder / name).read_text())]
    return [each for each in found if kind in (None, each["kind"])]


def read(folder):
    return yaml.safe_load((folder / "kustomization.yaml").read_text())


def pods(folder):
    """(kind, labels, specification) of what makes pods."""
    for each in manifests(folder):
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each.get("spec", {})
        if "template" in spec:
            yield each, spec["template"]["metadata"]["labels"], spec["template"]["spec"]


def containers(folder):
    for _, _, spec in pods(folder):
        yield from ((each, spec) for each in [*spec.get("initContainers", ()), *spec["containers"]])


@of_each_folder
def test_kubernetes_takes_every_manifest(folder):
    for each in manifests(folder):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    known = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
    assert set(read(folder)["resources"]) == known


@of_each_folder
def test_a_kustomization_has_known_members_and_names_what_is_there(folder):
    members = read(folder)
    assert (members["apiVersion"], members["kind"]) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    assert members.keys() == {"apiVersion", "kind", "namespace", "resources", "images", "configMapGenerator"}
    (image,), (generated,) = members["images"], members["configMapGenerator"]
    assert image.keys() == {"name", "newName", "newTag"} and generated.keys() == {"name", "literals"}
    images = {container["image"] for container, _ in containers(folder)}
    assert image["name"] in {each.partition(":")[0] for each in images}
    assert {each["metadata"]["name"] for each in manifests(folder, "Namespace")} == {members["namespace"]}


def test_a_manifest_that_is_wrong_is_noticed():
    server = next(each for each, labels, _ in pods(DEPLOY / "kubernetes" / "cluster") if labels["part"] == "server")
    server["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(server, KUBERNETES, strict=True)


@of_each_folder
def test_settings_are_settings_and_no_secret_stands_in_a_manifest(folder, monkeypatch, tmp_path):
    (generated,) = read(folder)["configMapGenerator"]
    environment = dict(text.split("=", 1) for text in generated["literals"])
    for container, _ in containers(folder):
        assert {each["configMapRef"]["name"] for each in container.get("envFrom", ())} <= {generated["name"]}
        environment |= {each["name"]: each["value"] for each in container.get("env", ())}
    assert not unknown_setting_warnings(environment)
    hidden = {f"FEWPASS_{name.upper()}" for name in SECRETS}
    assert not hidden & environment.keys() and {"FEWPASS_ADMIN_KEY_FILE"} <= environment.keys()
    for name, value in environment.items():
        if name.endswith("_FILE"):
            assert value.startswith("/run/secrets/fewpass/")
            (tmp_path / Path(value).name).write_text("sqlite:///a-key-of-24-characters")
            value = str(tmp_path / Path(value).name)
        monkeypatch.setenv(name, value)
    assert Settings().needs_keys is False  # until it listens on another address, as the command says


@of_each_folder
def test_commands_probes_and_volumes_are_there(folder):
    known = get_command(app).commands
    claims = {each["metadata"]["name"] for each in manifests(folder, "PersistentVolumeClaim")}
    locked = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for container, spec in containers(folder):
        shell = " ".join(container["command"])
        for name, rest in re.findall(r"^(?:\s*)fewpass (\w+)(.*)$", shell, re.MULTILINE):
            options = {option for parameter in known[name].params for option in parameter.opts}
            assert set(re.findall(r"--[a-z-]+", rest)) <= options, name
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert ("ports" in container) == (kind in container)
            if kind in container:
                asked = container[kind]["httpGet"]
                assert asked["path"] in OPEN and asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
        volumes = {each["name"]: each for each in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
        claimed = [v["persistentVolumeClaim"] for v in volumes.values() if "persistentVolumeClaim" in v]
        assert {claim["claimName"] for claim in claimed} <= claims
        assert container["securityContext"] == locked and spec["securityContext"]["runAsNonRoot"]


@of_each_folder
def test_selectors_find_pods(folder):
    labels = [found for _, found, _ in pods(folder)]
    kinds = ("Service", "PodDisruptionBudget", "Deployment")
    asked = [each["spec"]["selector"] for kind in kinds for each in manifests(folder, kind)]
    selectors = [selector.get("matchLabels", selector) for selector in asked]
    assert selectors and all(any(each.items() <= found.items() for found in labels) for each in selectors)


def test_a_cluster_survives_the_drain_of_a_node_and_is_backed_up():
    folder = DEPLOY / "kubernetes" / "cluster"
    budgets = [each["spec"]["selector"]["matchLabels"]["part"] for each in manifests(folder, "PodDisruptionBudget")]
    assert sorted(budgets) == ["server", "worker"]
    workspace, _ = manifests(folder, "PersistentVolumeClaim")
    assert workspace["spec"]["accessModes"] == ["ReadWriteMany"]
    for each in FOLDERS:
        assert [one["kind"] for one, _, _ in pods(each)].count("CronJob") == 1


def needs(name):
    return pytest.mark.skipif(shutil.which(name, path=PATHS) is None, reason=f"{name} is not installed")


def run(*command):
    place = os.environ | {"PATH": PATHS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=place)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs("kubectl")
@of_each_folder
def test_kubectl_builds_every_kustomization(folder):
    built = [each["kind"] for each in yaml.safe_load_all(run("kubectl", "kustomize", str(folder)))]
    assert sorted(built) == sorted([each["kind"] for each in manifests(folder)] + ["ConfigMap"])


@needs("caddy")
def test_caddy_reads_its_file():
    assert "reverse_proxy" in run("caddy", "adapt", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile"))


@needs("nginx")
@needs("openssl")
def test_nginx_reads_its_file(tmp_path):
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", str(tmp_path / "models.key")]
    run("openssl", "req", "-x509", *key, "-nodes", "-subj", "/CN=localhost", "-out", str(tmp_path / "models.pem"))
    # Ports and places that need no root; nothing listens.
    own = (DEPLOY / "nginx.conf").read_text()
    own = own.replace("/etc/ssl/", f"{tmp_path}/").replace("listen ", "listen 127.0.0.1:18")
    places = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    around = f"pid {tmp_path}/pid; events {{}} http {{ access_log off; client_body_temp_path {tmp_path}/body; {places} {own} }}"
    (tmp_path / "nginx.conf").write_text(around)
    run("nginx", "-t", "-e", str(tmp_path / "log"), "-c", str(tmp_path / "nginx.conf"))


def test_proxies_say_who_was_asked_and_hold_no_events_back():
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    port = Settings.model_fields["port"].default
    for line in (
        "proxy_set_header Host $host;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
        "proxy_buffering off;",
        "client_max_body_size 0;",
        f"server 127.0.0.1:{port};",
    ):
        assert line in nginx
    assert f"reverse_proxy 127.0.0.1:{port}" in caddy and "flush_interval -1" in caddy
    assert "max_size" not in caddy, "the server has limits of its own; of uploads a higher one"
