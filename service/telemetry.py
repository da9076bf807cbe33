"""Logs and metrics: structlog lines with request ids, and Prometheus counters; `service.http.middleware` records those
of requests.
"""

import logging
import os
import sys
from contextvars import ContextVar
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from service.settings import Settings

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
# The `traceparent` that a traced request passes on; https://www.w3.org/TR/trace-context/
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

REQUESTS = Counter("fewpass_requests", "HTTP requests.", ["route", "method", "status"])
LATENCY = Histogram(
    "fewpass_request_seconds", "Time from the request's head to its last byte.", ["route"], buckets=BUCKETS
)
PREDICTED_ROWS = Counter("fewpass_predicted_rows", "Rows answered.", ["model"])
MAPPED_MODELS = Gauge("fewpass_mapped_models", "Model versions mapped.", multiprocess_mode="livemax")
SWAPS = Counter("fewpass_catalogue_swaps", "Number of switches to a changed catalogue of models.")
CONTROL_UP = Gauge(
    "fewpass_control_up", "1 if the control database answered the last query, else 0.", multiprocess_mode="mostrecent"
)
JOBS = Gauge("fewpass_jobs", "Jobs by state at the last check.", ["state"], multiprocess_mode="mostrecent")

PASSES = Gauge("fewpass_running_passes", "Passes over data that jobs are running.", multiprocess_mode="mostrecent")
ROWS_PER_S = Gauge(
    "fewpass_pass_rows_per_second",
    "Rows that all these passes read per second.",
    multiprocess_mode="mostrecent",
)
MODEL_AGE = Gauge(
    "fewpass_model_age_seconds",
    "Age of the version behind a model's bare name.",
    ["model"],
    multiprocess_mode="mostrecent",
)

SERIES = {
    "window_end_timestamp_seconds": "End of the window of the other series.",
    "columns_alerting": "Columns with an alarm.",
    "max_effect_nats": "The largest change of a column given its parents.",
    "unseen_ratio": "The largest share of values that training never saw, over the columns.",
    "missing_ratio": "The largest share of missing values, over the columns.",
    "surprise_nats": "Mean -log P(row) for each known attribute.",
    "estimated_log_loss": "The log loss expected from the predicted probabilities.",
    "realised_log_loss": "The log loss of labelled predictions.",
    "label_coverage_ratio": "The share of predictions with an id or a key that have a label.",
    "label_delay_seconds": "Median time from a prediction to its label.",
}
# One series a model, and none a column: a table of a thousand columns must not make a thousand series.
MONITOR = {
    name: Gauge(f"fewpass_monitor_{name}", words, ["model"], multiprocess_mode="mostrecent")
    for name, words in SERIES.items()
}
MONITORED_ROWS = Counter("fewpass_monitor_rows", "Served rows that were counted.", ["model"])
SAMPLED_OUT_ROWS = Counter("fewpass_monitor_sampled_out_rows", "Served rows that were not counted.", ["model"])


def tracebacks_without_values() -> Any:
    """Return what renders a traceback without the values of local variables, which may be an API key or somebody's row."""
    import structlog

    return structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=30)


def configure_logs(settings: Settings, process: str) -> None:
    """Send every log line of this process, including those of libraries, to standard error in one format."""
    import structlog  # a command that predicts counts rows, and logs nothing

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    finish: list[Any] = (
        [structlog.processors.ExceptionRenderer(tracebacks_without_values()), structlog.processors.JSONRenderer()]
        if settings.log_format == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.log_level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process, pid=os.getpid())
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for library in ("dbos", "uvicorn", "alembic", "sqlalchemy"):
        adopt_library_logger(library)


def adopt_library_logger(library: str) -> None:
    """Log a library's warnings in our format, replacing its own handlers."""
    logger = logging.getLogger(library)
    logger.handlers = []
    logger.propagate = True
    logger.setLevel(logging.WARNING)


def _add_request_id(_logger: Any, _method: str, event: Any) -> Any:
    if (request_id := REQUEST_ID.get()) and "request_id" not in event:
        event["request_id"] = request_id
    if traceparent := TRACEPARENT.get():
        _, event["trace_id"], event["span_id"], _ = traceparent.split("-")
    return event


def metrics_text() -> bytes:
    """Return every metric in Prometheus' text format, summed over several serving processes."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
