"""POST /v1/models/{name}/explain: the log odds of each prediction, attribute by attribute."""

from typing import Any

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from learners.models.explanation import explain
from service.http.api.bodies.options import options_of
from service.http.api.scoring.predict import JSON, Predict, headers_of
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge
from service.serving.answers import check_size
from service.serving.predictor import Served

PATH = "/v1/models/{name}/explain"
MAX_ROWS = 1_000


class Reason(msgspec.Struct):
    """Why one row got its class: `log_odds` is `prior` plus all `contributions`.

    A contribution is infinite, and null in JSON, where the model excludes a class for a value.
    """

    prediction: str | int | bool
    against: str | int | bool
    log_odds: float | None
    prior: float | None
    contributions: dict[str, float | None]


class ExplainResponse(msgspec.Struct):
    """The prediction of each row, and its reasons against the next probable class."""

    model: str
    version: int
    classes: list[str | int | bool]
    predictions: list[str | int | bool]
    probabilities: list[list[float]]
    explanations: list[Reason]


class Explain:
    """The endpoint; it reads rows as the predict endpoint does."""

    def __init__(self, predict: Predict) -> None:
        self.predict = predict

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        content_type, _, _ = headers_of(request.scope)
        options = options_of(request.scope["query_string"])
        body = await request.body()
        served = await self.predict.served(request.path_params["name"])

        def work() -> bytes:
            self.predict.held(body, content_type, request.scope["fewpass.hold"])
            chunk = self.predict.rows(served, body, content_type, options).chunk
            if chunk.n_rows > MAX_ROWS:
                detail = f"{chunk.n_rows} rows; at most {MAX_ROWS} are explained at once."
                raise BodyTooLarge(detail, max_rows=MAX_ROWS)
            check_size(chunk.n_rows * (1 + len(served.schema.attributes)), len(served.classes), top_k=1)
            check_size(chunk.n_rows, len(served.classes))
            return msgspec.json.encode(explained(served, chunk))

        return Response(await anyio.to_thread.run_sync(work), media_type=JSON)


def explained(served: Served, chunk: Any) -> JSONObject:
    """The members of an `ExplainResponse`."""
    found = explain(served.model, chunk)
    classes = served.classes
    names = [attribute.name for attribute in served.schema.attributes]
    parts = found.predicted, found.against, found.log_odds, found.prior, found.contributions
    rows = zip(*(part.tolist() for part in parts), strict=True)
    served.count_rows(chunk.n_rows)
    return {
        "model": served.name,
        "version": served.version,
        "classes": classes,
        "predictions": [classes[code] for code in found.predicted.tolist()],
        "probabilities": found.probabilities.tolist(),
        "explanations": [
            {
                "prediction": classes[predicted],
                "against": classes[against],
                "log_odds": log_odds,
                "prior": prior,
                "contributions": dict(zip(names, contributions, strict=True)),
            }
            for predicted, against, log_odds, prior, contributions in rows
        ],
    }
