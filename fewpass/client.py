"""Client for a running server: train, publish, query and open models over REST."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import TypeAdapter

from fewpass.lifecycle import load, name_and_alias
from learners.errors import LearnerError
from learners.estimators.arguments import with_argument_checks
from learners.kernels.arrays import Floats
from learners.models.query import AnyQuery

ARROW = "application/vnd.apache.arrow.stream"
LOOK_S = 0.2
ENDED = ("succeeded", "failed", "cancelled")
QUERIES: TypeAdapter[list[AnyQuery]] = TypeAdapter(list[AnyQuery])

JSON = dict[str, Any]


class ServerError(LearnerError):
    """An error reported by the server, in the server's words.

    Attributes
    ----------
    status : int or None
        Status of the HTTP answer; None if the server gave no answer.
    problem : dict
        The members of the problem+json answer.
    """

    def __init__(self, message: str, status: int | None = None, problem: JSON | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, problem or {}


class Predictions(NamedTuple):
    """Class probabilities of rows, and the model version that computed them.

    Attributes
    ----------
    classes : list
    probabilities : (n_rows, n_classes) float64
    model : str
    version : int
    """

    classes: list[Any]
    probabilities: Floats
    model: str
    version: int

    @property
    def predicted(self) -> list[Any]:
        """Most probable class of each row."""
        return [self.classes[k] for k in self.probabilities.argmax(axis=1).tolist()]


class Client:
    """Client for the REST API of a server; every method raises `ServerError` if the server refuses.

    Parameters
    ----------
    url : str
    key : str, optional
        An API key, as `fewpass keys create` prints it.
    timeout_s : float
        For one answer.

    Examples
    --------
    >>> with fewpass.Client("http://127.0.0.1:8000") as client:
    ...     client.train(["train/*.parquet"], "class", model="income")
    ...     client.predict("income", [{"age": 39, "job": "clerk"}]).probabilities
    """

    @with_argument_checks
    def __init__(self, url: str = "http://127.0.0.1:8000", key: str | None = None, *, timeout_s: float = 60.0) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def train(
        self,
        uris: Iterable[str],
        target: str | None,
        *,
        model: str,
        learner: str = "auto",
        parameters: Mapping[str, object] | None = None,
        advance: Callable[[JSON], object] = lambda progress: None,
        **options: object,
    ) -> JSON:
        """Train a model on files that the server can read, wait for the end of the job, and return its result.

        Parameters
        ----------
        uris : iterable of str
        target : str or None
            The class column.
        model : str
            The name to publish under.
        learner : str
        parameters : mapping, optional
            Parameters of the learner.
        advance : callable
            Gets the progress of the job now and then.
        **options
            What else a training job may have, such as `aliases` or `columns`; see docs/reference/service.md.
        """
        named = {"kind": "train", "uris": list(uris), "target": target, "model": model, "learner": learner}
        return self.wait(self.submit(named | {"parameters": dict(parameters or {})} | options)["id"], advance)

    def submit(self, request: Mapping[str, object]) -> JSON:
        """Submit a job of any kind and return it."""
        return self._json("POST", "/v1/jobs", body=dict(request))

    def wait(self, job: str, advance: Callable[[JSON], object] = lambda progress: None) -> JSON:
        """Wait until a job ends and return its result.

        Raises
        ------
        ServerError
            If it fails or is cancelled.
        """
        while (state := self._json("GET", f"/v1/jobs/{job}"))["state"] not in ENDED:
            advance(state["progress"] or {})
            time.sleep(LOOK_S)
        if state["state"] != "succeeded":
            problem = state["error"] or {}
            raise ServerError(problem.get("detail") or f"Job {job} was {state['state']}.", problem=problem)
        return dict(state["result"] or {})

    def models(self) -> list[JSON]:
        """Return all models, fetched page by page."""
        models, cursor = [], None
        while True:
            page = self._json("GET", "/v1/models", params={} if cursor is None else {"cursor": cursor})
            models += page["items"]
            if (cursor := page.get("next_cursor")) is None:
                return models

    def model(self, reference: str) -> JSON:
        """Return the record of a version: "name", "name@3" or "name@alias"."""
        return self._json("GET", _of_model(reference))

    def predict(self, reference: str, rows: Any) -> Predictions:
        """Return the class probabilities of rows.

        Parameters
        ----------
        reference : str
        rows : pyarrow Table, pandas DataFrame, or sequence of dicts
            Columns may be absent, values missing.
        """
        answer = self._json("POST", _of_model(reference, "predict"), **_rows(rows))
        return Predictions(answer["classes"], np.asarray(answer["probabilities"]), answer["model"], answer["version"])

    def query(self, reference: str, queries: Sequence[AnyQuery]) -> list[JSON]:
        """Answer queries such as `fewpass.Conditional(("late",), {"city": "Graz"})`, in their order."""
        body = {"queries": QUERIES.dump_python(list(queries), mode="json")}
        return list(self._json("POST", _of_model(reference, "query"), body=body)["answers"])

    def score(self, reference: str, rows: Sequence[Mapping[str, object]], **options: object) -> JSON:
        """Return the log likelihood of rows, and the surprise rank of each."""
        return self._json("POST", _of_model(reference, "score"), body={"records": list(rows)} | options)

    def impute(self, reference: str, rows: Sequence[Mapping[str, object]], **options: object) -> JSON:
        """Return the rows with their missing cells filled."""
        return self._json("POST", _of_model(reference, "impute"), body={"records": list(rows)} | options)

    def publish(self, model: Any, reference: str) -> JSON:
        """Add a fitted estimator to the server's registry as the next version of a name; see `fewpass.publish`.

        Parameters
        ----------
        model : estimator
        reference : str
            "name", or "name@alias" to point an alias at the version.
        """
        name, alias = name_and_alias(reference)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.tar"
            model.save(path)
            with path.open("rb") as file:
                headers = {"content-type": "application/x-tar"}
                version = self._json("POST", _of_model(name, "import"), content=file, headers=headers)
        if alias is not None:
            self._json("PUT", _of_model(name, "aliases", alias), body={"version": version["version"]})
        return version

    def open(self, reference: str) -> Any:
        """Return the estimator of a version, as `fewpass.open` does."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.tar"
            path.write_bytes(self._answer("GET", _of_model(reference, "export")).content)
            return load(path)

    def _json(self, method: str, path: str, **options: Any) -> JSON:
        return dict(self._answer(method, path, **options).json())

    def _answer(self, method: str, path: str, body: JSON | None = None, **options: Any) -> httpx.Response:
        if body is not None:  # no number is null, dates and times are ISO 8601
            content = msgspec.json.encode(body, enc_hook=_plain)
            options = {"content": content, "headers": {"content-type": "application/json"}}
        try:
            answer = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ServerError(f"{self._http.base_url} does not answer: {error}") from error
        if answer.is_error:
            raise _refused(answer)
        return answer


def _of_model(reference: str, *more: str) -> str:
    """Return the URL path of a model's resource."""
    return "/".join(("/v1/models", quote(reference, safe="@"), *(quote(part, safe="") for part in more)))


def _plain(value: Any) -> Any:
    """Convert a NumPy or pandas value to a plain Python value."""
    if value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"{value!r} ({type(value).__name__}) is not a value of a row: pass text, a number, a boolean, a time or None."
    )


def _refused(answer: httpx.Response) -> ServerError:
    try:
        problem = dict(answer.json())
    except ValueError:  # not of our server
        problem = {}
    text = str(problem.get("detail") or f"{answer.request.url} answered {answer.status_code} {answer.reason_phrase}.")
    return ServerError(text, answer.status_code, problem)


def _rows(rows: Any) -> JSON:
    if isinstance(rows, pd.DataFrame):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if not isinstance(rows, pa.Table):
        return {"body": {"records": list(rows)}}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {"content": sink.getvalue().to_pybytes(), "headers": {"content-type": ARROW, "accept": "application/json"}}
