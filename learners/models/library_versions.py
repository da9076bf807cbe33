"""Versions of installed libraries."""

from importlib.metadata import PackageNotFoundError, version

OTHER_NAMES = {"xgboost": "xgboost-cpu"}  # the same library without code for GPUs, as the image has it


def installed_version(library: str) -> str:
    """Return the version of a library under either of its names. Raises PackageNotFoundError if it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        if library not in OTHER_NAMES:
            raise
        return version(OTHER_NAMES[library])
