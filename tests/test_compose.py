"""What compose.yaml starts, and what it refuses to start: checked without Docker, by the text and by the shell that it names."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

TEXT = (Path(__file__).parent.parent / "compose.yaml").read_text()
SERVICES = yaml.safe_load(TEXT)["services"]


@pytest.mark.parametrize(
    ("password", "refused"), [(None, True), ("", True), ("a secret with 'quotes' and $signs", False)]
)
def test_a_database_without_a_password_does_not_start(tmp_path, password, refused):
    control = SERVICES["control"]
    image = tmp_path / "docker-entrypoint.sh"
    image.write_text('#!/bin/sh\necho "started $*"\n')
    image.chmod(0o700)
    words = [word.replace("$$", "$") for word in control["entrypoint"] + control["command"]]
    own = {} if password is None else {"POSTGRES_PASSWORD": password}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | own
    run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == ((1, "") if refused else (0, "started postgres\n"))
    assert run.stderr.startswith("POSTGRES_PASSWORD is empty: set it") == refused


@pytest.mark.parametrize("name", ["server", "worker"])
def test_nothing_of_the_profile_starts_before_its_database(name):
    assert SERVICES[name]["profiles"] == SERVICES["control"]["profiles"] == ["postgres"]
    assert SERVICES[name]["depends_on"]["control"] == {"condition": "service_healthy"}


def test_the_other_profile_starts_without_a_password_of_a_database():
    """Compose replaces variables in the whole file, whatever the profile: `:?` would ask for this one always."""
    assert SERVICES["lite"]["profiles"] == ["lite"] and "POSTGRES_PASSWORD:?" not in TEXT.replace(
        "`${POSTGRES_PASSWORD:?…}`", ""
    )
    assert "depends_on" not in SERVICES["lite"]
    for name in ("server", "lite"):
        assert SERVICES[name]["environment"]["FEWPASS_ADMIN_KEY"].startswith(
            "${FEWPASS_ADMIN_KEY:?set FEWPASS_ADMIN_KEY"
        )
