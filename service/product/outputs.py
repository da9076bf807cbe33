"""Files that a command writes where the user says."""

from pathlib import Path

from service.problems import InvalidRequest


def check_free(output: Path, *, replace: bool) -> None:
    """Refuse a file that exists and is not to be replaced.

    Raises
    ------
    InvalidRequest
    """
    if output.exists() and not replace:
        raise InvalidRequest(
            f"{output} exists already. Choose another name, or replace it with --force.", path=str(output)
        )
