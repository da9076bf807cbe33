"""Learners specified in one word of text, and digests of their code."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from learners.errors import InvalidParameter, one_of
from learners.evaluation.peers import PEERS
from learners.models.library_versions import installed_version
from learners.models.parameters import parse_parameters_dataclass
from learners.registry import recipes

# Whatever a learner is: these decide on which rows it is measured, and how.
MEASURING = ("learners.evaluation.datasets", "learners.evaluation.metrics")
# Commas between parameters, not those of a list such as prior=[0,0].
OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")
VERSIONED = {"xgboost": "xgboost", "sklearn": "scikit-learn"}


@dataclass(frozen=True)
class LearnerSpec:
    """A learner with its parameters."""

    text: str  # the one way to write it: parameters in alphabetical order
    name: str
    parameters: tuple[tuple[str, object], ...] = ()  # tuple of (name, value)

    @property
    def is_peer(self) -> bool:
        """True if the learner exists for evaluation only."""
        return self.name not in recipes.LEARNERS

    @classmethod
    def parse(cls, text: str) -> LearnerSpec:
        """Parse `name` or `name:parameter=value,parameter=value`; values are parsed as JSON if possible, else kept as
        text.

        Raises InvalidParameter if the learner or parameter does not exist, or the value is not allowed.
        """
        name, _, rest = text.strip().partition(":")
        parameters: dict[str, object] = {}
        for entry in filter(None, OUTSIDE_BRACKETS.split(rest)):
            key, separator, value = entry.partition("=")
            if not separator:
                raise InvalidParameter("learner", text, because=f"write {entry!r} as parameter=value")
            try:
                read = json.loads(value)
                parameters[key.strip()] = tuple(read) if isinstance(read, list) else read
            except ValueError:
                parameters[key.strip()] = value.strip()
        if name in recipes.LEARNERS:
            recipes.parse_learner_parameters(name, parameters)
        elif name in PEERS:
            parse_parameters_dataclass(PEERS[name].parameters, name, parameters)
        else:
            known = [*recipes.LEARNERS, *(peer for peer in PEERS if peer not in recipes.LEARNERS)]
            raise InvalidParameter("learner", name, one_of(name, known))
        ordered = tuple(sorted(parameters.items()))
        words = ",".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in ordered)
        return cls(f"{name}:{words}" if words else name, name, ordered)

    def code_version(self) -> str:
        """Return a digest of the source of all modules that the learner and its measurement import.

        Results are measured again only when this code changes.
        """
        root = "learners.evaluation.peers" if self.is_peer else _home(recipes.LEARNERS[self.name].passes)
        return learner_source_digest((root, *MEASURING))


def _home(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(function.__module__)


@cache
def learner_source_digest(roots: tuple[str, ...]) -> str:
    """Return the SHA-256 (16 hex digits) of the source files of modules and of all `learners` modules that they import."""
    pending, sources, libraries = list(roots), {}, set()
    while pending:
        name = pending.pop()
        if name in sources:
            continue
        if not name.startswith("learners"):
            libraries.add(name.split(".")[0])
            continue
        path = _source_of(name)
        if path is None:
            continue
        sources[name] = path.read_bytes()
        pending += _imports(ast.parse(sources[name]))
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    for library in sorted(libraries & VERSIONED.keys()):
        digest.update(f"{library} {installed_version(VERSIONED[library])}\0".encode())
    return digest.hexdigest()[:16]


def _source_of(name: str) -> Path | None:
    """Return the file of a module; None if the name is a function or class."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _imports(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module
            # `from learners.classifiers import hdp` imports a module, too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names if node.module.startswith("learners"))
