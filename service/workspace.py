"""The opened workspace: one directory with its settings, its layout, and the control database beside it."""

import threading
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from service.settings import Settings
from storage.control.control import Control, open_control
from storage.files.workspace_layout import Layout, Temporary, Witness


class Closable(Protocol):
    """What is opened once and closed with the workspace."""

    def close(self) -> None:
        """Give back what it holds."""


Opened = TypeVar("Opened", bound=Closable)
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Workspace:
    """One directory of models, data set statistics and jobs.

    Nothing is opened before it is needed, and everything is closed together. What can be done with a workspace are plain
    functions in `service.product`.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opening = threading.RLock()
        self._opened: dict[str, Closable] = {}

    @cached_property
    def layout(self) -> Layout:
        """Where everything is kept; its folders are made on first use."""
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
        """Refuse to go on with a control database that somebody has removed meanwhile."""
        if self.settings.control_url is None:
            self.opened("witness", lambda: Witness(self.layout.control_path)).check()

    @property
    def temporary(self) -> Path:
        """A folder of this process' own in the workspace; should the process be killed, the next one sweeps it away."""
        return self.opened("temporary", lambda: Temporary(self.layout.scratch)).path

    def opened(self, name: str, opener: Callable[[], Opened]) -> Opened:
        """What was opened under a name of one type, or what `opener` opens now, under a lock; `close` closes it."""
        with self._opening:
            if name not in self._opened:
                self._opened[name] = opener()
            return cast("Opened", self._opened[name])

    def close(self) -> None:
        """Close everything, the last opened first."""
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
    """A verb of the control database, as one of the workspace that it belongs to."""

    @wraps(verb)
    def on_workspace(workspace: Workspace, /, *given: Arguments.args, **named: Arguments.kwargs) -> Answer:
        return verb(workspace.control, *given, **named)

    return on_workspace
