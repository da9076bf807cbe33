"""POST /v1/models/{name}/explain: reasons for predictions."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from learners.models.explanation import explain
from service.http.api.scoring.predict import JSON, Predict, parse_predict_headers, parse_predict_options
from service.requests.abandonment import check_still_asked
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge
from service.requests.roles import needs_role
from service.serving.class_answers import check_class_answer_size
from service.serving.predictor import Served
from storage.control.api_keys_and_sessions import Role

PATH = "/v1/models/{name}/explain"
MAX_ROWS = 1_000


class Reason(msgspec.Struct):
    """Explanation of one row's class: `log_odds` is `prior` plus the sum of all `contributions`.

    A contribution is infinite, and null in JSON, where the model excludes a class for a value.
    """

    prediction: str | int | bool
    against: str | int | bool
    log_odds: float | None
    prior: float | None
    contributions: dict[str, float | None]


class ExplainResponse(msgspec.Struct):
    """The prediction of each row, and the contributions that favour it over the second most probable class."""

    model: str
    version: int
    classes: list[str | int | bool]
    predictions: list[str | int | bool]
    probabilities: list[list[float]]
    explanations: list[Reason]


@needs_role(Role.PREDICT)
async def explain_endpoint(request: Request) -> Response:
    """Explain predictions; rows are read as the predict endpoint reads them.

    Rows that lack columns need hundreds of predictions each, so explanations run beside queries and not beside lists.
    """
    predict: Predict = request.app.predict
    content_type, _, _ = parse_predict_headers(request.scope)
    options = parse_predict_options(request.scope["query_string"])
    body = await request.body()
    served = await predict.served(request.path_params["name"])

    def work() -> bytes:
        predict.held(body, content_type, request.scope["fewpass.hold"])
        chunk = predict.rows(served, body, content_type, options).chunk
        if chunk.n_rows > MAX_ROWS:
            raise BodyTooLarge(f"{chunk.n_rows} rows; the limit is {MAX_ROWS} rows per request.", max_rows=MAX_ROWS)
        check_class_answer_size(chunk.n_rows * (1 + len(served.schema.attributes)), len(served.classes), top_k=1)
        check_class_answer_size(chunk.n_rows, len(served.classes))
        return msgspec.json.encode(explain_response_members(served, chunk))

    return Response(await request.app.state.opening.computing.run(work), media_type=JSON)


def explain_response_members(served: Served, chunk: Any) -> JSONObject:
    """Return the members of an `ExplainResponse`."""
    explained = explain(served.model, chunk, check_still_asked)
    classes = served.classes
    names = [attribute.name for attribute in served.schema.attributes]
    parts = explained.predicted, explained.against, explained.log_odds, explained.prior, explained.contributions
    rows = zip(*(part.tolist() for part in parts), strict=True)
    served.count_rows(chunk.n_rows)
    return {
        "model": served.name,
        "version": served.version,
        "classes": classes,
        "predictions": [classes[code] for code in explained.predicted.tolist()],
        "probabilities": explained.probabilities.tolist(),
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
