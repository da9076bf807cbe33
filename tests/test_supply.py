"""What an installation brings."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
REQUIREMENTS = [
    Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())


XGBOOST = {
    "xgboost-cpu": [("linux", "x86_64"), ("linux", "aarch64"), ("win32", "AMD64")],
    "xgboost": [("win32", "ARM64"), ("linux", "ppc64le"), ("darwin", "x86_64"), ("darwin", "arm64")],
}


@pytest.mark.parametrize("name", XGBOOST)
def test_each_platform_gets_one_xgboost_without_code_for_gpus_where_it_is_published(name):
    for system, machine in XGBOOST[name]:
        here = {"sys_platform": system, "platform_machine": machine}
        asked = [r.name for r in REQUIREMENTS if r.marker is None or r.marker.evaluate(here)]
        assert [each for each in asked if each.startswith("xgboost")] == [name], here


def test_both_names_of_xgboost_are_pinned_to_one_version_and_no_gpu_library_is():
    assert PINNED["xgboost"] == PINNED["xgboost-cpu"]
    assert [name for name in PINNED if name.startswith(("nvidia", "cuda", "cupy"))] == []


def test_every_requirement_of_a_plain_install_is_pinned():
    names = {name.lower().replace("_", "-") for name in PINNED}
    assert [r.name for r in REQUIREMENTS if r.name.lower() not in names] == []
