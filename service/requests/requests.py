"""Request shapes shared by REST, the command line and jobs."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from learners.errors import InvalidParameter
from learners.models.estimation import Average
from learners.models.query import AnyQuery, How
from learners.passes.memory import parse_memory_size
from service.requests.first_findings import Body, is_auto, is_empty, is_false, is_missing
from service.requests.json_values import JSONMapping, JSONObject
from storage.files.workspace_layout import checked_alias, checked_resource_name

MAX_QUERIES = 10_000  # of one request or job
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"


def _name(name: str) -> str:
    return checked_resource_name("model, data set, schedule or key", name)


# The patterns are for clients; a violation is told in our words.
Name = Annotated[
    str, AfterValidator(_name), WithJsonSchema({"type": "string", "pattern": NAME}), Field(examples=["income"])
]
Alias = Annotated[str, AfterValidator(checked_alias), WithJsonSchema({"type": "string", "pattern": NAME})]
# What is known of a column, or in one word: "drop", "nominal", "numeric".
Columns = dict[str, JSONObject | Literal["drop", "nominal", "numeric"]]
Fraction = Annotated[float, Field(ge=0, lt=1)]
WINDOW = r"^[1-9]\d{0,8}[mhdwf]$"


def _window(length: str) -> str:
    """Check the length of a window before any file is opened, with the error of
    `learners.passes.sources.row_filter.select_newest_rows`.
    """
    if re.fullmatch(WINDOW, length) is None:
        raise InvalidParameter("window", length, "a number and a unit: m, h, d, w for time, f for files; such as 30d")
    return length


Window = Annotated[str, AfterValidator(_window), WithJsonSchema({"type": "string", "pattern": WINDOW})]


class Request(Body):
    """Base of the request shapes; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def parse_memory_limit(size: object) -> int:
    """Parse a memory limit in bytes or in words such as "2 GiB"; InvalidParameter if it is neither."""
    try:
        number = size if isinstance(size, int) and not isinstance(size, bool) else parse_memory_size(str(size))
    except InvalidParameter:
        number = 0
    if not MIN_MEMORY <= number < MAX_MEMORY:
        raise InvalidParameter("memory_limit", size, "a number of bytes, or such as 512MiB or 2GiB; at least 256MiB")
    return number


MIN_MEMORY, MAX_MEMORY = 256 << 20, 1 << 50
Bytes = Annotated[
    int,
    BeforeValidator(parse_memory_limit),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": MIN_MEMORY, "exclusiveMaximum": MAX_MEMORY},
                {"type": "string", "pattern": r"^([3-9]\d\d|[1-9]\d{3,5}) ?MiB$|^[1-9]\d{0,3}(\.\d{1,3})? ?GiB$"},
            ]
        }
    ),
]


class LimitedRequest(Request):
    """Base of job requests with resource limits; omitted limits are not stored."""

    memory_limit: Bytes | None = Field(
        default=None,
        exclude_if=is_missing,
        description="Memory limit of the job beyond the memory of an idle worker; a job above it is ended. An eighth is for "
        "counts; further ones go to files. Default: FEWPASS_JOB_MEMORY.",
        examples=["2GiB"],
    )
    time_limit_s: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        exclude_if=is_missing,
        description="Maximum run time since the last start; FEWPASS_JOB_TIMEOUT_S is the default and the upper bound.",
        examples=[3600],
    )


class DatasetRequest(Request):
    """Register files under a name."""

    name: Name
    uris: list[str] = Field(min_length=1, max_length=10_000, examples=[["/data/income/*.parquet"]])
    target: str | None = Field(default=None, description="The column to predict.", examples=["class"])
    columns: Columns = Field(
        default_factory=dict,
        description="Corrections of the inferred schema, by column; the key * sets options for reading the files.",
        examples=[{"age": {"kind": "numeric"}, "row_id": {"drop": True}}],
    )


def learns_trees(learner: str, parameters: JSONMapping) -> bool:
    """Return whether a learner corrects networks by trees, which takes longer than the networks."""
    return learner == "auto" and parameters.get("effort") != "low" and parameters.get("correction") != "none"


class TrainRequest(LimitedRequest):
    """Train a model and add it to the registry as the next version of its name."""

    kind: Literal["train"] = "train"
    dataset: str | None = Field(default=None, description="A registered data set.", examples=["income"])
    uris: list[str] | None = Field(default=None, description="Or files that are not registered.")
    target: str | None = Field(default=None, description="The column to predict; by default that of the data set.")
    columns: Columns = Field(default_factory=dict, description="Corrections of the inferred schema, as for a data set.")
    learner: str = Field(
        default="auto", description="By default a corrected ensemble of networks.", examples=["auto", "kdb"]
    )
    parameters: JSONObject = Field(default_factory=dict, examples=[{"members": 8}])
    model: Name
    test_dataset: str | None = Field(default=None, description="A registered data set to evaluate on.")
    test_uris: list[str] | None = Field(default=None, description="Or files to evaluate on.")
    holdout: Fraction = Field(
        default=0.2, description="Share of the rows kept back to evaluate on; 0 evaluates nothing."
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="Seed of the choice of rows to keep back.")
    holdout_by: Literal["auto", "time", "order", "random"] = Field(
        default="auto",
        exclude_if=is_auto,
        description="Rows that stand in for future data: they are kept back and decide whether growing columns are used. time: "
        "the newest; order: the last; random: any; auto: the newest if a column has times and networks predict "
        "them worse.",
    )
    update: bool = Field(
        default=False,
        description="Reuse stored counts and read only new files; `cuts` selects the cut points.",
    )
    cuts: Literal["fresh", "kept", "auto"] = Field(
        default="auto",
        exclude_if=is_auto,
        description="Attributes and cut points of an update. fresh: those of training from scratch; columns with moved cut "
        "points are counted again in all rows. kept: those of the last training. auto: kept until a column loses "
        "more than 1 % of left-out log loss.",
    )
    networks_first: bool = Field(
        default=False,
        exclude_if=is_false,
        description="With `update` and trees (learner auto): first publish the networks alone as a version of their own, which "
        "answer until the trees are learned.",
    )
    window: Window | None = Field(
        default=None,
        description="Learn only from the newest rows: 30d for the 30 days before the newest row (w, d, h, m), or 12f for the last 12 files.",
        examples=["30d"],
    )
    timestamp: str | None = Field(
        default=None,
        description="Column of times for the window and for holdout_by=time; by default the modification times of the files.",
    )
    at: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        exclude_if=is_missing,
        description="Version of a lake table, or a time that selects the last snapshot before it. By default the newest snapshot.",
    )
    verify: bool = Field(
        default=False,
        exclude_if=is_false,
        description="Read all bytes of all Parquet files first, to find every rewritten file, even one with the same size, "
        "modification time, footer and sampled bytes.",
    )
    aliases: list[Alias] = Field(default_factory=list, description="Aliases to move to the new version.")
    tags: dict[str, str] = Field(default_factory=dict)

    @property
    def keeps_back(self) -> bool:
        """True if rows are held out for evaluation."""
        return self.holdout > 0 and self.test_dataset is None and self.test_uris is None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.uris is None):
            raise ValueError("give either 'dataset' or 'uris'")
        if self.timestamp is not None and self.window is None and self.holdout_by != "time":
            raise ValueError("'timestamp' belongs to 'window': give both")
        if self.networks_first and not self.update:
            raise ValueError("'networks_first' belongs to 'update': give both")
        if self.networks_first and not learns_trees(self.learner, self.parameters):
            raise ValueError(
                f"'networks_first' is for trainings with trees, and learner {self.learner!r} learns none here: leave it out"
            )
        return self


class ScoringRequest(LimitedRequest):
    """Base of jobs that read rows in the types of a model."""

    model: str = Field(examples=["income@champion"])
    dataset: str | None = None
    uris: list[str] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.uris is None):
            raise ValueError("give either 'dataset' or 'uris'")
        return self


class EvaluateRequest(ScoringRequest):
    """Measure a model version on a data set that has the target column."""

    kind: Literal["evaluate"] = "evaluate"
    columns: Columns = Field(
        default_factory=dict, exclude_if=is_empty, description="Corrections of the inferred schema, as for a data set."
    )


class SchemaRequest(LimitedRequest):
    """Infer the schema of a registered data set in one pass, and store it."""

    kind: Literal["schema"] = "schema"
    dataset: str


class QueryJobRequest(LimitedRequest):
    """Answer queries that take longer than a request may."""

    kind: Literal["query"] = "query"
    model: str = Field(examples=["weather@champion"])
    queries: list[Annotated[AnyQuery, Field(discriminator="kind")]] = Field(min_length=1, max_length=MAX_QUERIES)


class ScoreRequest(ScoringRequest):
    """Compute the log likelihood and surprise rank of every row of a data set."""

    kind: Literal["score"] = "score"
    keep: list[str] = Field(default_factory=list, description="Columns of the data to copy.")
    average: Average | None = Field(default=None, description="Average over the graphs of a posterior over structures.")


class ImputeRequest(ScoringRequest):
    """Fill the missing cells of a data set."""

    kind: Literal["impute"] = "impute"
    how: How = Field(default="mode", description="mode, mean (for numbers; otherwise the mode) or draw.")
    columns: list[str] = Field(default_factory=list, description="Columns to fill; by default all of the model.")
    draws: int = Field(default=1, ge=1, le=1000, description="Number of completed rows for each row, with how=draw.")
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _drawn(self) -> Self:
        if self.draws > 1 and self.how != "draw":
            raise ValueError("several draws belong to how='draw'")
        return self


MOST_CONDITIONS, MOST_CONDITION_CHARACTERS = 100, 50_000  # of one job that forgets
OneCondition = Annotated[str, Field(min_length=1, max_length=10_000)]


class ForgetRequest(LimitedRequest):
    """Remove rows from the statistics of a data set, and from the models trained on it."""

    kind: Literal["forget"] = "forget"
    dataset: str | None = Field(default=None, description="A registered data set.", examples=["income"])
    model: str | None = Field(default=None, description="Or a model trained on unregistered files.")
    where: OneCondition | Annotated[list[OneCondition], Field(min_length=1, max_length=MOST_CONDITIONS)] = Field(
        description="SQL condition on the rows to forget, or a list of conditions; each becomes a rule with its own receipt.",
        examples=["user_id = 7"],
    )
    prediction_key: str | None = Field(
        default=None,
        max_length=1_000,
        exclude_if=is_missing,
        description="Column with the prediction keys (X-Prediction-Key) of the rows, to forget their predictions, too.",
        examples=["order_id"],
    )
    retrain: bool = Field(
        default=True, description="Train the models again, with the settings of their newest versions."
    )
    prove: bool = Field(
        default=True, description="Count once more from the remaining rows alone and compare the models bit for bit."
    )
    prove_later: bool = Field(
        default=False,
        exclude_if=is_false,
        description="Run the proof as a separate job, queued when this one ends.",
    )
    networks_first: bool = Field(
        default=False,
        exclude_if=is_false,
        description="If trees must be trained again, first publish the networks without the rows, which answer until then.",
    )
    dry_run: bool = Field(
        default=False,
        exclude_if=is_false,
        description="Only report how many rows of which files would be forgotten, and which models would be retrained.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.model is None):
            raise ValueError("give either 'dataset' or 'model'")
        return self

    @model_validator(mode="after")
    def _short_enough(self) -> Self:
        if sum(map(len, self.conditions)) > MOST_CONDITION_CHARACTERS:
            raise ValueError(
                f"the conditions of one job may have {MOST_CONDITION_CHARACTERS:,} characters together; forget in several jobs"
            )
        return self

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions, each once."""
        return tuple(dict.fromkeys([self.where] if isinstance(self.where, str) else self.where))


class PromotionRule(Request):
    """Rule for replacing the champion by a new version; both are measured on the same held-out rows.

    It does if `metric` is at least `margin` less than the champion's and the calibration error is at most
    `max_ece_increase` greater. No version does, nor becomes the first champion, that is worse than the class shares alone
    or than `max_loss`.
    """

    alias: Alias = Field(default="champion", description="The alias to move.", examples=["champion"])
    metric: Literal["log_loss", "rmse", "zero_one_loss"] = Field(
        default="log_loss",
        description="Lower is better. Models without a target have only log_loss, the mean negative log likelihood.",
    )
    margin: float = Field(
        default=0.0,
        ge=-100,
        le=100,
        description="Required improvement; if negative, how much worse the new version may be.",
        examples=[0.001],
    )
    max_ece_increase: float | None = Field(
        default=0.02,
        ge=0,
        le=1,
        description="Limit on the increase of the expected calibration error, for models with a target; null for none.",
    )
    beats_prior: bool = Field(
        default=True,
        description="Never promote a version, not even the first, with a metric worse than that of the class shares alone or "
        "of equal probabilities.",
    )
    max_loss: float | None = Field(
        default=None,
        ge=-1e6,
        le=1e6,
        description="Never promote a version, not even the first, with a metric greater than this; null for no limit.",
        examples=[0.6],
    )
    dataset: str | None = Field(
        default=None, description="A registered data set to measure on, instead of the newest rows kept back."
    )
    newest_files: int = Field(
        default=1, ge=1, le=10_000, description="Number of newest files whose rows kept back are used."
    )
    min_rows: int = Field(
        default=100,
        ge=1,
        description="Minimum number of rows for a decision; older files are added until it is reached.",
    )


class RefreshRequest(LimitedRequest):
    """Train a version, measure it and the champion on the newest rows, and move the alias if the rule allows it."""

    kind: Literal["refresh"] = "refresh"
    train: TrainRequest
    promotion: PromotionRule = PromotionRule()
    when: Literal["always", "drift"] = Field(
        default="always",
        description="Train always, or only if the rows that the champion served have changed in the last day.",
    )
    quarantine_points: float | None = Field(
        default=None,
        ge=0.1,
        le=100,
        description="Fail without training if, in a file that the champion has not learned, the share of absent, missing, "
        "unseen or out-of-range values has grown by this many percentage points, or columns are swapped or "
        "clipped. null: train in any case.",
        examples=[1.0],
    )

    @model_validator(mode="after")
    def _is_fair(self) -> Self:
        train, rule = self.train, self.promotion
        if rule.alias in train.aliases:
            raise ValueError(f"the alias {rule.alias!r} is moved by the promotion rule: leave it out of 'aliases'")
        if not (train.keeps_back or rule.dataset or train.test_dataset or train.test_uris):
            raise ValueError("there are no rows to compare on: set 'holdout', or 'dataset' in the promotion rule")
        return self


AnyRequest = (
    TrainRequest
    | EvaluateRequest
    | SchemaRequest
    | ForgetRequest
    | QueryJobRequest
    | ScoreRequest
    | ImputeRequest
    | RefreshRequest
)
JobRequest = Annotated[AnyRequest, Field(discriminator="kind")]
ScheduledRequest = Annotated[TrainRequest | EvaluateRequest | RefreshRequest, Field(discriminator="kind")]
Missed = Literal["catch_up", "skip"]


class SubmissionRequest(Request):
    """A job as the command line submits it."""

    job: JobRequest
    priority: Literal["high", "normal", "low"]


class ScheduleRequest(Request):
    """Submit a job repeatedly on a schedule."""

    name: Name = Field(examples=["nightly"])
    cron: str = Field(
        max_length=255, description="Minute, hour, day, month, weekday; or @daily, …", examples=["30 2 * * *"]
    )
    timezone: str = Field(default="UTC", max_length=64, examples=["Europe/Berlin"])
    missed: Missed = Field(
        default="catch_up",
        description="Handling of times missed because no worker ran or the previous run was still running. catch_up: one run "
        "as soon as possible, however many were missed; skip: none.",
    )
    job: ScheduledRequest


class ScheduleChange(Request):
    """Changes of a schedule; omitted members stay."""

    cron: str | None = Field(default=None, max_length=255, examples=["0 4 * * mon-fri"])
    timezone: str | None = Field(default=None, max_length=64)
    missed: Missed | None = None
    job: ScheduledRequest | None = None
