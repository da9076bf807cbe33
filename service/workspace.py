"""An open workspace: a directory with its settings, its layout and its control database."""

import threading
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from service.settings import Settings
from storage.control.control import Control, open_control
from storage.files.workspace_layout import Layout, Temporary, Witness


class Closable(Protocol):
    """A resource that is opened once and closed with the workspace."""

    def close(self) -> None:
        """Release the resource."""


Opened = TypeVar("Opened", bound=Closable)
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Workspace:
    """A directory of models, data set statistics and jobs.

    Nothing is opened before it is needed, and everything is closed together. What can be done with a workspace are plain
    functions in `service.product`.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opening = threading.RLock()
        self._opened: dict[str, Closable] = {}

    @cached_property
    def layout(self) -> Layout:
        """Layout of the workspace; its folders are created on first use."""
        return Layout(self.settings.workspace).create()

    @property
    def control_url(self) -> str:
        """SQLAlchemy URL of the control database."""
        return self.settings.control_url or self.layout.control_url

    @property
    def control(self) -> Control:
        """The control database, migrated when first opened."""
        control = self.opened("control", lambda: open_control(self.control_url, self.layout.root))
        self.check_there()
        return control

    def check_there(self) -> None:
        """Refuse to continue if the control database has been removed (Unwritable)."""
        if self.settings.control_url is None:
            self.opened("witness", lambda: Witness(self.layout.control_path)).check()

    @property
    def temporary(self) -> Path:
        """A private folder of this process in the workspace; if the process is killed, the next one removes it."""
        return self.opened("temporary", lambda: Temporary(self.layout.scratch)).path

    def opened(self, name: str, opener: Callable[[], Opened]) -> Opened:
        """Return the resource opened under a name, or open it with `opener` under a lock; `close` closes it."""
        with self._opening:
            if name not in self._opened:
                self._opened[name] = opener()
            return cast("Opened", self._opened[name])

    def close(self) -> None:
        """Close all resources in reverse order of opening."""
        with self._opening:
            while self._opened:
                self._opened.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bind_control_to_workspace(
    verb: Callable[Concatenate[Control, Arguments], Answer],
) -> Callable[Concatenate[Workspace, Arguments], Answer]:
    """Turn a function of the control database into a function of its workspace."""

    @wraps(verb)
    def on_workspace(workspace: Workspace, /, *given: Arguments.args, **named: Arguments.kwargs) -> Answer:
        return verb(workspace.control, *given, **named)

    return on_workspace
