"""What a job would fail with that can be seen before it is queued: files that there are not, questions of no sense."""

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from learners.circuits.columns import check_left_out, knows_nothing_of, labels_of, never_had
from learners.circuits.model import CircuitModel
from learners.circuits.queries import check
from learners.classifiers.lookup import LookupModel
from learners.errors import SourceError, UnknownColumn
from learners.model import Model
from learners.query import Marginal, Query
from learners.schema.records import encode_records
from service.queries import NoJoint
from service.requests import AnyRequest, RefreshRequest
from service.roots import files_of, plain

if TYPE_CHECKING:
    from service.workspace import Workspace


def check_files(workspace: "Workspace", request: AnyRequest) -> None:
    """Refuse a job whose files are not there. Not for schedules, whose files may be written later.

    Object stores are not asked: a request shall not wait for them.

    Raises
    ------
    SourceError
    """
    for uri in _uris(workspace, request):
        path = plain(uri)
        if "://" in path or "**" in path or Path(path).exists():
            continue
        if not glob.has_magic(path):
            raise SourceError(uri, "no such file or folder.")
        if next(glob.iglob(path, include_hidden=True), None) is None:  # noqa: PTH207 (Path.glob takes no absolute one)
            raise SourceError(uri, "matches no file.")


def _uris(workspace: "Workspace", request: AnyRequest) -> Iterator[str]:
    """Where the data of a job come from."""
    named = request.train if isinstance(request, RefreshRequest) else request
    for member in ("uris", "test_uris"):
        yield from getattr(named, member, None) or ()
    yield from files_of(getattr(named, "parameters", {}))
    for member in ("dataset", "test_dataset"):
        if (name := getattr(named, member, None)) is not None:
            yield from workspace.dataset(name).uris


def check_queries(model: Model, asked: Sequence[Query]) -> None:
    """Refuse queries whose columns or values the model has not, without answering them.

    Raises
    ------
    NoJoint, UnknownColumn, InvalidEvidence, SchemaError
    """
    if isinstance(model, CircuitModel):
        check(model.circuit, model.schema, asked)
    elif isinstance(model, LookupModel):
        for query in asked:
            _check_of_network(model, query)
    else:
        raise NoJoint(model.kind)


def _variables(query: Query) -> Sequence[str]:
    return () if isinstance(query, Marginal) else query.variables


def _check_of_network(model: LookupModel, query: Query) -> None:
    """As a circuit would, which is not made for this: that of a network may be large."""
    schema = model.schema
    places = {attribute.name: place for place, attribute in enumerate(schema.attributes)}
    names = [*places, str(schema.target)]
    given = {name: value for name, value in query.evidence.items() if value is not None}
    for name in (*query.evidence, *_variables(query)):
        if name not in names:
            check_left_out(schema, name)
            raise UnknownColumn(name, names)
        if (name in given or name in _variables(query)) and places.get(name, -1) not in (-1, *model.network.order):
            raise knows_nothing_of(name)
    for name, value in given.items():
        if name == schema.target:
            if str(value) not in schema.classes:
                raise never_had(name, value, schema.classes)
            continue
        attribute = schema.attributes[places[name]]
        if isinstance(value, str) and value in labels_of(attribute):
            continue
        # A rare value that shares its code with others has one.
        if encode_records([{name: value}], schema).x[places[name], 0] == attribute.n_values:
            raise never_had(name, value, labels_of(attribute))
