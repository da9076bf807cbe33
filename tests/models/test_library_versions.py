"""Versions of libraries that have two names."""

from importlib.metadata import PackageNotFoundError

import pytest

from learners.models import library_versions


def test_the_version_is_found_under_either_name(monkeypatch):
    installed = {"xgboost-cpu": "3.2.0", "numpy": "2.4.0"}

    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(library_versions, "version", version)
    assert [library_versions.installed_version(name) for name in ("xgboost", "numpy")] == ["3.2.0", "2.4.0"]
    with pytest.raises(PackageNotFoundError, match="duckdb"):
        library_versions.installed_version("duckdb")
