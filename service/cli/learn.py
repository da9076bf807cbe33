"""`fewpass train | evaluate | schema | forget`: run in this process, without a server."""

import getpass
import json
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from typer import Argument, Option

from learners.passes.row_rules import row_weight_rule
from learners.schema.schema import NO_CUT
from learners.wording import count_with_noun
from service import product
from service.cli.ask import parse_option
from service.cli.evaluation import (
    evaluation_summary_line,
    forgetting_price_line,
    quietly_left_out_line,
    rows_read_summary,
    show_evaluation_comparison,
    show_evaluation_metrics,
    suggested_next_commands,
    worse_than_shares_warning,
)
from service.cli.shared_options import (
    ColumnsOption,
    JsonOption,
    Texts,
    UrisArgument,
    WorkspaceOption,
    read_columns_option,
)
from service.requests.json_values import JSONObject
from service.requests.written_evidence import parse_name_value_pairs
from service.terminal_output import (
    command_line_settings,
    escape_rich_markup,
    open_existing_workspace,
    out,
    print_json_and_exit,
    print_table,
    print_warning,
    terminal_progress_bar,
)
from service.workspace import Workspace

# A bare name with a point may be a file that is not there.
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}@[a-z0-9._-]+|[a-z0-9][a-z0-9_-]{0,63}")
TargetOption = Annotated[str | None, Option("--target", "-t", help="The column to predict.")]
HOLDOUT_BY = ("auto", "time", "order", "random")


def train_command(
    uris: UrisArgument,
    *,
    target: TargetOption = None,
    name: Annotated[str, Option("--name", "-n", help="Name of the model; each training adds a version.")],
    learner: Annotated[str, Option("--learner", "-l", help="auto (the default), eskdb, nb, tan, kdb, ...")] = "auto",
    k: Annotated[int | None, Option("--k", help="Parents per attribute, for kdb and skdb.")] = None,
    effort: Annotated[
        str | None, Option("--effort", help="For auto: low (networks only), normal, or high (more and larger trees).")
    ] = None,
    parameters: Annotated[
        Texts, Option("--set", help="Another parameter of the learner, as name=value; may be repeated.")
    ] = None,
    test: Annotated[Texts, Option("--test", help="Files to evaluate on, instead of rows that are kept back.")] = None,
    holdout: Annotated[
        float | None,
        Option("--holdout", min=0, max=0.99, help="Share of rows to keep back and evaluate on.", show_default="0.2"),
    ] = None,
    seed: Annotated[int, Option("--seed", min=0, help="Seed of the choice of rows that are kept back.")] = 0,
    holdout_by: Annotated[
        str,
        Option("--holdout-by", help="Rows to keep back: auto, time (the newest), order (the last) or random."),
    ] = "auto",
    alias: Annotated[Texts, Option("--alias", help="Alias to point at the new version.")] = None,
    columns: ColumnsOption = None,
    weight: Annotated[
        str | None, Option("--weight", help="Column with the weight of each row, a whole number.")
    ] = None,
    null_class: Annotated[
        str | None,
        Option("--null-class", help="Class of rows whose class is missing; drop leaves them out."),
    ] = None,
    columns_of: Annotated[
        str | None,
        Option(
            "--columns-of",
            help="Columns to use where files differ: union, intersection or first.",
        ),
    ] = None,
    update: Annotated[bool, Option("--update", help="Reuse stored counts and read new files only.")] = False,
    cuts: Annotated[
        Literal["auto", "fresh", "kept"],
        Option(
            "--cuts",
            help="Cut points of an --update: fresh (as from scratch), kept, or auto (kept until they cost more than 1 % of the loss).",
        ),
    ] = "auto",
    networks_first: Annotated[
        bool,
        Option(
            "--networks-first",
            help="With --update and trees: let the networks alone answer, as a version of their own, until the trees are learned.",
        ),
    ] = False,
    window: Annotated[
        str | None,
        Option(
            "--window",
            help="Learn the newest rows only, such as 30d (units w, d, h, m; without a row at the very edge), or the last files, such as 12f.",
        ),
    ] = None,
    timestamp: Annotated[
        str | None, Option("--timestamp", help="Column of times for --window; by default the times when files changed.")
    ] = None,
    at: Annotated[
        str | None, Option("--at", help="Version of a lake table, or a time: the last snapshot before it.")
    ] = None,
    verify: Annotated[
        bool, Option("--verify", help="Read all files completely first, to find every rewritten one.")
    ] = False,
    cluster: Annotated[
        str | None, Option("--cluster", help="Run the passes on Dask workers: tcp://host:8786, or local:4.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        Option("--memory-limit", help="Memory limit, such as 2GiB; counts are moved to files before it is reached."),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Train a model and add it to the workspace as a new version."""
    from service.requests.requests import TrainRequest, parse_memory_limit
    from service.workspace import Workspace

    if test and holdout:
        raise typer.BadParameter(
            "evaluate on rows kept back or on files of --test, not on both.", param_hint="--holdout"
        )
    if holdout_by not in HOLDOUT_BY:
        raise typer.BadParameter(f"use {', '.join(HOLDOUT_BY)}.", param_hint="--holdout-by")
    if null_class is not None and target is None:
        raise typer.BadParameter("name the target, too.", param_hint="--null-class")
    request = TrainRequest(
        uris=uris,
        target=target,
        learner=learner,
        parameters=parse_option(
            parse_name_value_pairs,
            [
                *(parameters or []),
                *(f"{option}={given}" for option, given in (("k", k), ("effort", effort)) if given is not None),
            ],
            "--set",
        ),
        model=name,
        test_uris=test or None,
        holdout=0 if test else 0.2 if holdout is None else holdout,
        seed=seed,
        holdout_by=cast("Any", holdout_by),
        aliases=alias or [],
        columns=_columns(
            columns, (weight, "weight", True), (target, "null_class", null_class), ("*", "columns_of", columns_of)
        ),
        update=update,
        cuts=cuts,
        networks_first=networks_first,
        window=window,
        timestamp=timestamp,
        at=at,
        verify=verify,
        memory_limit=None if memory_limit is None else parse_memory_limit(memory_limit),
    )
    started = time.perf_counter()
    settings = command_line_settings(workspace)
    if cluster is not None:
        settings = settings.model_copy(update={"cluster": cluster})
    with Workspace(settings) as here, terminal_progress_bar(not json_output) as report:
        version, passes = product.train_and_report_passes(here, request, report, print_warning)
        schema = product.schema_of_version(version)
        newest = product.kept_back(version).newest_rows_line()
        networks = product.networks_of_job(here, version.name, version.job_id)
        by_name = product.find_version(here, version.name).version  # by the name alone: the champion, if there is one
    print_json_and_exit(version, json_output)
    seconds = time.perf_counter() - started
    rows = "rows" if row_weight_rule(request.columns) is None else "rows (sum of weights)"
    learning = version.metrics.get("train_s")
    alone = "" if learning is None else f", {learning:.2f} s of it for training alone"
    out.print(
        f"[bold]{version.name}@{version.version}[/]: {version.learner} from {version.n_rows:,} {rows} in {seconds:.2f} s{alone}"
    )
    if words := quietly_left_out_line(schema):
        out.print(words, highlight=False, markup=False)
    if networks is not None:
        out.print(f"{networks.name}@{networks.version}, the networks alone, answered until the trees were learned")
    if update:
        out.print(rows_read_summary(passes, is_update=True), highlight=False)
    if words := evaluation_summary_line(version.metrics):
        out.print(words, highlight=False)
        if warning := worse_than_shares_warning(version.metrics):
            print_warning(warning)
        if newest:
            out.print(newest, highlight=False, markup=False)
    nominal = next((each.name for each in schema.attributes if each.kind == "nominal"), None)
    reference = version.name
    if by_name != version.version:
        reference = f"{version.name}@{version.version}"
        out.print(
            f"{version.name} still stands for version {by_name}, its champion. To change that: fewpass models alias {reference} champion",
            highlight=False,
        )
    steps = suggested_next_commands(
        reference, version.learner, schema.target or nominal, None if workspace is None else str(workspace)
    )
    out.print(f"[dim]{escape_rich_markup(steps)}[/]", highlight=False, soft_wrap=True)


WHAT_STAYS = (
    "What stays: the condition itself, with the rules and in the job, so that later trainings leave the rows out; your data files and "
    "earlier backups. More in docs/how-to/forget.md."
)


def forget_command(
    name: Annotated[str, Argument(help="A data set, or a model that was trained on files.")],
    where: Annotated[
        list[str] | None,
        Option("--where", help="Which rows, as an SQL condition, such as 'user_id = 7'; may be repeated."),
    ] = None,
    withdraw: Annotated[
        str | None, Option("--withdraw", help="Withdraw the rule with this condition; models stay. Needs --reason.")
    ] = None,
    reason: Annotated[str | None, Option("--reason", help="Why the rule is withdrawn; stored with it.")] = None,
    prediction_key: Annotated[
        str | None,
        Option(
            "--prediction-key", help="Column with the keys of served predictions, to forget these predictions, too."
        ),
    ] = None,
    retrain: Annotated[bool, Option(help="Train the models again without the rows.")] = True,
    prove: Annotated[bool, Option(help="Train once more on the remaining rows only, and compare.")] = True,
    prove_later: Annotated[
        bool, Option("--prove-later", help="Queue the proof as a job of its own, which a worker runs.")
    ] = False,
    networks_first: Annotated[
        bool, Option("--networks-first", help="Let networks without the rows answer until the trees are learned again.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be forgotten.")] = False,
    name_of: Annotated[
        Literal["dataset", "model"] | None,
        Option("--name-of", help="What the name means, if a data set and a model have it."),
    ] = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Remove rows from the statistics and the models, and prove that nothing of them is left; or withdraw a rule of
    forgotten rows.
    """
    from service.requests.requests import ForgetRequest

    if withdraw is not None and not where:
        _withdraw(name, withdraw, reason, workspace, json_output)
        return
    if not where or withdraw is not None or reason is not None:
        raise typer.BadParameter("Give either --where, or --withdraw with --reason.")
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        place: JSONObject = {name_of or _named_kind(here, name): name}
        request = ForgetRequest(
            where=where[0] if len(where) == 1 else where,
            prediction_key=prediction_key,
            retrain=retrain,
            prove=prove,
            prove_later=prove_later,
            networks_first=networks_first,
            dry_run=dry_run,
            **place,
        )
        if retrain and not dry_run and not json_output:
            for line in product.costs_of_trees(here, request):
                out.print(escape_rich_markup(line), highlight=False)
        done = product.forget_rows(here, request, report)
        aliases = _aliases_that_stay(here, done)
    print_json_and_exit(done, json_output)
    condition = " or ".join(where)
    held = f"{count_with_noun(done['n_rows'], 'row')} in {count_with_noun(len(done['files']), 'file')}"
    found = f"{held} where {escape_rich_markup(condition)}"
    if not (done["n_rows"] or done.get("versions") or done.get("holding")):
        kept = "" if dry_run else " The rule also applies to later files."
        out.print(
            f"No row matches {escape_rich_markup(condition)}: no model {'would change' if dry_run else 'changed'}.{kept}",
            highlight=False,
        )
    elif dry_run:
        out.print(f"Would be forgotten: {found}.", highlight=False)
        out.print(f"Models that would be trained again: {', '.join(done['would_retrain']) or 'none'}")
        out.print(f"Versions that know these rows: {', '.join(done['holding']) or 'none'}")
        for line in aliases:
            out.print(line, highlight=False)
        for price in done["prices"]:
            out.print(escape_rich_markup(forgetting_price_line(price)), highlight=False)
        if "served" in done:
            out.print(f"Predictions that would be forgotten: {done['served']['predictions']:,}")
    else:
        out.print(f"Forgotten: {found}.", highlight=False)
    if dry_run:
        return
    if served := done.get("served"):
        out.print(
            f"{served['predictions']:,} predictions and {served['labels']:,} labels are forgotten, {served['subtracted']:,} "
            "rows are subtracted from the counts of monitoring"
        )
    for entry in done["versions"]:
        out.print(f"[bold]{entry['model']}@{entry['version']}[/] is trained without them")
    for proof in done["proofs"]:
        verdict = "equals, bit for bit," if proof["is_equal"] else "[red]DIFFERS from[/]"
        out.print(
            f"{proof['model']}@{proof['version']} {verdict} the model of the remaining {proof['n_rows']:,} training rows"
        )
    if "proof_job" in done:
        out.print(
            f"Subtracted, proof pending: a worker proves it in {done['proof_job']} and completes the receipt "
            "(fewpass serve and fewpass worker run jobs).",
            highlight=False,
        )
    elif done["versions"] and not done["proofs"]:
        out.print(
            "Subtracted, proof pending: the same command without --no-prove proves it, and completes the receipt."
        )
    if done["still_holding"]:
        out.print(f"Versions that still know them: {', '.join(done['still_holding'])} (fewpass models delete)")
    for line in aliases:
        out.print(line, highlight=False)
    if done["receipt"] is None:
        out.print(escape_rich_markup(done["no_receipt"]), highlight=False)
    else:
        for receipt in done.get("receipts", [done["receipt"]]):
            out.print(f"Receipt: fewpass receipts show {receipt['id']}", highlight=False)
    out.print(WHAT_STAYS, highlight=False)


def _named_kind(here: Workspace, name: str) -> str:
    """Return whether a data set or a model is meant; refuse a name of both whose newest version has learned other files."""
    from storage.errors import NotFound

    kind = product.dataset_or_model_kind(here, name)
    if kind == "dataset":
        try:
            newest = product.find_version(here, f"{name}@latest")
        except NotFound:
            return kind
        if newest.dataset != name:
            raise typer.BadParameter(
                f"{name!r} is a data set, and a model whose newest version, {newest.name}@{newest.version}, was not trained on that "
                "data set but on files or another one: choose dataset or model.",
                param_hint="--name-of",
            )
    return kind


def _aliases_that_stay(workspace: Workspace, forgotten: JSONObject) -> list[str]:
    """Name the aliases that still serve a version with the forgotten rows.

    An alias of the newest version follows to the version that is trained without them.
    """
    lines = []
    holding = forgotten.get("still_holding") or forgotten.get("holding") or ()
    for name in sorted({version.partition("@")[0] for version in holding}):
        newest = product.find_version(workspace, f"{name}@latest").version
        follows = name in forgotten.get("would_retrain", ())
        for alias, version in product.aliases_of(workspace, name).items():
            if f"{name}@{version}" in holding and not (follows and version == newest):
                if follows:
                    remedy = f"Move it: fewpass models alias {name}@VERSION {alias}"
                elif f"{name}@{newest}" in holding:
                    remedy = f"Forget them there, too: fewpass forget {name} with the same --where"
                else:
                    remedy = f"Move it: fewpass models alias {name}@{newest} {alias}"
                lines.append(f"Alias {alias} of {name} stays at version {version}, which knows them. {remedy}")
    return lines


def _withdraw(name: str, where: str, reason: str | None, workspace: Path | None, json_output: bool) -> None:

    if not reason:
        raise typer.BadParameter("Give a reason; it is stored with the rule.", param_hint="--reason")
    with open_existing_workspace(workspace) as here:
        done = product.withdraw_forgetting_rule(here, name, where, by=_user(), reason=reason)
    print_json_and_exit(done, json_output)
    out.print(f"Trainings of {escape_rich_markup(name)} read these rows again: {escape_rich_markup(done['where'])}")
    if done["still_under"]:
        out.print(f"The same rule still stands under: {', '.join(done['still_under'])}")


def _user() -> str:
    """Return the user who runs this command; a container may have no name for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def evaluate_command(
    model: Annotated[str, Argument(help="name, name@version or name@alias; more of them are compared.")],
    uris: UrisArgument,
    columns: ColumnsOption = None,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure a model on rows whose class is known, or several models side by side: fewpass evaluate a@1 a@2 FILE."""
    from service.requests.requests import EvaluateRequest

    n_more = next((n for n, uri in enumerate(uris) if not _is_reference(uri)), len(uris))
    models, files = [model, *uris[:n_more]], uris[n_more:]
    if not files:
        raise typer.BadParameter("Name a file with rows to measure on.", param_hint="URIS...")
    with open_existing_workspace(workspace) as here, terminal_progress_bar(not json_output) as report:
        if n_more:
            evaluation = product.evaluate_versions(here, models, files, report, columns=read_columns_option(columns))
        else:
            request = EvaluateRequest(model=model, uris=files, columns=read_columns_option(columns))
            evaluation = product.evaluate_model_version(here, request, report)
    print_json_and_exit(evaluation, json_output)
    for warning in evaluation.pop("warnings", []):
        print_warning(warning)
    if n_more:
        show_evaluation_comparison(evaluation)
        return
    out.print(
        f"[bold]{evaluation.pop('model')}@{evaluation.pop('version')}[/]: {evaluation_summary_line(evaluation)}",
        highlight=False,
    )
    show_evaluation_metrics(evaluation)


def _is_reference(text: str) -> bool:
    """Return whether a word is a model reference and not an existing file."""
    return REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def schema_command(
    uris: UrisArgument, target: TargetOption = None, columns: ColumnsOption = None, json_output: JsonOption = False
) -> None:
    """Infer how columns would be learned, in one pass: kinds, values, missing values and excluded columns."""
    with terminal_progress_bar(not json_output) as report:
        schema = product.infer_schema_of_files(uris, target, read_columns_option(columns), report, print_warning)
    print_json_and_exit(json.loads(schema.to_json()), json_output)
    print_table(
        f"{schema.n_attributes} attributes",
        ["attribute", "type", "kind", "codes", "missing"],
        [
            [a.name, _plain(a.arrow_type), str(a.kind), a.n_values, "yes" if a.has_missing else "no"]
            for a in schema.attributes
        ],
    )
    if schema.target is not None:
        out.print(
            f"target [bold]{escape_rich_markup(schema.target)}[/]: {', '.join(map(escape_rich_markup, map(str, schema.classes[:20])))}"
        )
    for column in schema.left_out:
        out.print(f"[yellow]left out[/] {escape_rich_markup(column.name)}: {escape_rich_markup(str(column.reason))}")
    if any(column.reason == NO_CUT for column in schema.left_out):
        out.print(
            "auto, eskdb and xgboost learn these columns, too, since they may predict the class together with others; nb, tan, kdb and skdb do not.",
            soft_wrap=True,
        )


def _plain(arrow_type: str) -> str:
    """Return the value type of a column; some files are read as dictionaries to save work."""
    match = re.fullmatch(r"dictionary<values=([^,]+),.*>", arrow_type)
    return arrow_type if match is None else match[1]


def _columns(text: str | None, *options: tuple[str | None, str, str | bool | None]) -> JSONObject:
    """Merge `--columns` with the options that set a field of a single column."""
    columns = read_columns_option(text)
    for name, field, value in options:
        if name is not None and value is not None:
            known = columns.get(name, {})
            columns[name] = (known if isinstance(known, dict) else {"kind": known}) | {field: value}
    return columns
