"""Static files: what is vendored is what was taken from its package, and nothing else can be read."""

import gzip
import hashlib
import json
from importlib.resources import files

import pytest

from service.console.assets import find_static_asset, static_asset_url

VENDOR = files("service.console").joinpath("static", "vendor")
VENDORED = json.loads(VENDOR.joinpath("vendored.json").read_text())


@pytest.mark.parametrize("told", VENDORED, ids=lambda told: told["file"])
def test_vendored_files_are_as_they_were_taken(told):
    assert hashlib.sha256(VENDOR.joinpath(told["file"]).read_bytes()).hexdigest() == told["sha256"]
    assert all(VENDOR.joinpath(name).read_text() for name in told["licence_files"])
    assert told["licence"] in {"MIT", "0BSD", "Apache-2.0"} and told["version"][0].isdigit()


def test_every_vendored_file_is_listed():
    present = {path.name for path in VENDOR.iterdir() if path.name.endswith((".js", ".css"))}
    assert present == {told["file"] for told in VENDORED}


@pytest.mark.parametrize(
    "name", ["../pages.py", "vendor/../../pages.py", "", "vendor", "..", "a\\b.js", "x.py", "no.js"]
)
def test_nothing_else_is_a_static_file(name):
    assert find_static_asset(name) is None


def test_an_address_changes_with_its_content():
    url = static_asset_url("console.css")
    path, _, digest = url.partition("?v=")
    found = find_static_asset(path.removeprefix("/console/static/"))
    assert found is not None and hashlib.sha256(found.content).hexdigest().startswith(digest)
    assert gzip.decompress(found.packed) == found.content
    with pytest.raises(LookupError, match=r"no file 'nothing\.js'"):
        static_asset_url("nothing.js")
