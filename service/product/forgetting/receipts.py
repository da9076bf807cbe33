"""Receipts of forgotten rows: written at the end of a job that forgets, listed, read and verified.

A receipt holds no condition, path or value of a row: it names files by their digests, and the condition by a keyed hash.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from learners.errors import ExtraMissing, require_extra
from learners.passes.sources.source import SourceFile, file_identity
from service.jobs.steps import Run
from service.product.versions.registry import list_versions
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.requests.requests import ForgetRequest
from service.workspace import Workspace
from storage.control.paging import DEFAULT_LIMIT, Page, iterate_page_items
from storage.datasets.predicates import RowPredicate
from storage.datasets.receipts import Receipts, canonical_json, is_receipt, merkle_root, verified_receipt
from storage.errors import AlteredReceipt, ForeignReceipt, InvalidReceipt

PROVED, PENDING = "proved", "subtracted, proof pending"


@dataclass(frozen=True)
class ReceiptSummary:
    """One receipt in a list.

    Parameters
    ----------
    id : str
        That of the job.
    at : datetime
        When the job ended; aware, UTC.
    subject : str
        The data set, or the model that was trained on files.
    n_rows : int
        Number of forgotten rows.
    proof : str
        "proved", "subtracted, proof pending" if versions were trained and not yet proved, or "not proved" if none was trained.
    """

    id: str
    at: datetime
    subject: str
    n_rows: int
    proof: str


@dataclass(frozen=True)
class ReceiptVerdict:
    """Whether a receipt holds.

    Parameters
    ----------
    verdict : str
        "valid"; "altered", if its signature does not fit it; or "unknown key", if another key than the workspace's signed it.
    id : str or None
        That of a valid receipt.
    detail : str
        The verdict in one sentence, and the remedy.
    """

    verdict: Literal["valid", "altered", "unknown key"]
    id: str | None
    detail: str


def searched_files(
    files: Sequence[SourceFile], counts: Mapping[int, int], groups: Mapping[str, Mapping[int, int]]
) -> JSONObject:
    """Return the total number of rows, and of each row group with matching rows the digest of its file and its numbers of rows.

    `groups`: by the identity of a file, how many rows of its row groups match; a file that is not there counts as a whole.
    """
    touched: list[JSONObject] = []
    for index, n in counts.items():
        file, own = files[index], groups.get(file_identity(files[index]), {})
        head = {"sha256": file.digests[0]}
        if n and len(file.row_groups) > 1 and own:
            touched += [
                head | {"row_group": group, "n_rows": file.row_groups[group], "n_forgotten": n_forgotten}
                for group, n_forgotten in own.items()
            ]
        elif n:
            touched.append(head | {"n_rows": file.n_rows, "n_forgotten": n})
    return {"n_rows": sum(file.n_rows for file in files), "files": sorted(touched, key=canonical_json)}


def add_forgetting_receipt(workspace: Workspace, run: Run) -> JSONObject:
    """Return the result of a job that forgets, with a signed `receipt`; if it is None, `no_receipt` gives the reason.

    Several conditions have a receipt each (`receipts`). A dry run has none.
    """
    request, result = ForgetRequest(**run.request), run.receipts["prove"]
    if request.dry_run:
        return result
    searched = run.receipts["mark"].get("searched")
    result = dict(result)
    failed = [f"{proof['model']}@{proof['version']}" for proof in result["proofs"] if not proof["is_equal"]]
    if failed:
        return _without(result, f"No receipt was written: the proof failed for {', '.join(failed)}.")
    if searched is None:  # the job began under a release without receipts
        return _without(result, "No receipt was written: forget the same rows again to get one.")
    try:
        _require_cryptography()
    except ExtraMissing as error:
        return _without(result, f"No receipt was written. {error} Then forget the same rows again.")
    receipts, written = Receipts(workspace.layout.root), []
    several = run.receipts["mark"].get("each") or [searched]
    holding = result.pop("holding_each", None) or [result["still_holding"]]
    for number, (where, own, held) in enumerate(zip(request.conditions, several, holding, strict=True), start=1):
        content = _content(workspace, request, result | {"still_holding": held}, own)
        content["condition_hmac_sha256"] = receipts.condition_hmac(RowPredicate(where).text)
        receipt = receipts.write(run.job_id if len(several) == 1 else f"{run.job_id}-{number}", content)
        _complete_pending_receipts(receipts, receipt)
        written.append(receipt)
    return result | {"receipt": written[0]} | ({"receipts": written} if len(written) > 1 else {})


def _complete_pending_receipts(receipts: Receipts, receipt: JSONObject) -> None:
    """Add a proof to earlier receipts of the same condition and subject whose versions it proves."""
    proof = receipt["proof"]
    proved = {version["version"] for version in proof["versions"]}
    for summary in iterate_page_items(receipts.page):
        own = ("condition_hmac_sha256", "subject")
        trained = {version["version"] for version in summary["versions"]["trained"]}
        is_same = all(summary[name] == receipt[name] for name in own)
        if is_same and summary["proof"]["status"] == PENDING and trained <= proved:
            versions = [version for version in proof["versions"] if version["version"] in trained]
            content = {name: value for name, value in summary.items() if name != "signature"}
            content["proof"] = {"status": PROVED, "versions": versions, "by": receipt["id"]}
            receipts.write(summary["id"], content)


def _without(result: JSONObject, reason: str) -> JSONObject:
    own = {name: value for name, value in result.items() if name != "holding_each"}
    return own | {"receipt": None, "no_receipt": reason}


def _require_cryptography() -> None:
    require_extra("A signed receipt", "cryptography", "cryptography", "receipts")


def _content(workspace: Workspace, request: ForgetRequest, result: JSONObject, searched: JSONObject) -> JSONObject:
    """Return the members of a receipt but for its condition and signature."""
    subject = {"dataset": request.dataset} if request.dataset else {"model": str(request.model).partition("@")[0]}
    trained = [(entry["model"], entry["version"]) for entry in result["versions"]]
    names = sorted({name for name, _ in trained} | {held.partition("@")[0] for held in result["still_holding"]})
    existing = {
        (version.name, version.version): version
        for name in names
        for version in iterate_page_items(partial(list_versions, workspace, name))
    }
    gone = [
        f"{name}@{number}"
        for name in names
        for number in range(1, max((version for model, version in existing if model == name), default=0))
        if (name, number) not in existing
    ]
    proofs = [
        {"version": f"{proof['model']}@{proof['version']}", "is_equal": proof["is_equal"], "n_rows": proof["n_rows"]}
        for proof in result["proofs"]
    ]
    n_forgotten = sum(file["n_forgotten"] for file in searched["files"])
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "subject": subject,
        "files": searched["files"],
        "merkle_root": merkle_root([canonical_json(file) for file in searched["files"]]),
        "rows": {
            "before": searched["n_rows"],
            "forgotten": n_forgotten,
            "after": searched["n_rows"] - n_forgotten,
        },
        "versions": {
            "trained": [
                {"version": f"{name}@{number}", "sha256": version.sha256, "n_rows": version.n_rows}
                for name, number in trained
                if (version := existing.get((name, number))) is not None
            ],
            "still_holding": result["still_holding"],
            "gone": gone,
        },
        "statistics_removed": result["statistics_removed"],
        "predictions": result.get("served"),
        "proof": {"status": PROVED if proofs else PENDING if trained else "not proved", "versions": proofs},
    }


def list_receipts(workspace: Workspace, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[ReceiptSummary]:
    """Return a page of the receipts, newest first. Raises InvalidCursor or CorruptFile."""
    return Receipts(workspace.layout.root).page(limit, cursor).of(_summary)


def _summary(receipt: JSONObject) -> ReceiptSummary:
    (subject,) = receipt["subject"].values()
    at, n_rows = datetime.fromisoformat(receipt["at"]), receipt["rows"]["forgotten"]
    return ReceiptSummary(receipt["id"], at, subject, n_rows, receipt["proof"]["status"])


def read_receipt(workspace: Workspace, receipt_id: str) -> bytes:
    """Return the bytes of a receipt, as they were signed (NotFound)."""
    return Receipts(workspace.layout.root).read(receipt_id)


def receipts_public_key(workspace: Workspace) -> bytes:
    """Return the public key that verifies the receipts of a workspace, as PEM (InvalidRequest where none was written)."""
    key = Receipts(workspace.layout.root).public_key()
    if key is None:
        raise InvalidRequest(
            "This workspace has signed no receipt yet, so it has no key. Pass the public key of the other workspace with --key.",
            field="public_key",
        )
    return key


def verify_receipt(data: bytes, public_key: bytes) -> JSONObject:
    """Return the content of a receipt after verifying its signature.

    Parameters
    ----------
    data : bytes
        The receipt, exactly as it was written.
    public_key : bytes
        PEM, as `receipts_public_key` returns it.

    Raises
    ------
    InvalidReceipt
        If the receipt was altered, or another key signed it.
    ExtraMissing
        If `cryptography` is not installed.
    """
    _require_cryptography()
    return verified_receipt(data, public_key)


def receipt_verdict(workspace: Workspace, data: bytes) -> ReceiptVerdict:
    """Verify a file with the key of a workspace.

    Raises
    ------
    InvalidRequest
        If the file is not a receipt, or one of a later release.
    ExtraMissing
        If `cryptography` is not installed.
    """
    _require_cryptography()
    if not is_receipt(data):
        what = "is empty" if not data.strip() else "is not a receipt"
        raise InvalidRequest(
            f"The file {what}: choose one as Download on this page or fewpass receipts show ID --out FILE writes it.",
            field="body",
        )
    try:
        content = verified_receipt(data, receipts_public_key(workspace))
    except AlteredReceipt as error:
        return ReceiptVerdict("altered", None, str(error))
    except ForeignReceipt as error:
        return ReceiptVerdict("unknown key", None, str(error))
    except InvalidReceipt as error:
        raise InvalidRequest(str(error), field="body") from error
    rows, receipt_id = content["rows"], str(content["id"])
    return ReceiptVerdict(
        "valid",
        receipt_id,
        f"Receipt {receipt_id} is valid: this workspace signed that {rows['forgotten']:,} of {rows['before']:,} rows were forgotten at "
        f"{content['at']}, {content['proof']['status']}.",
    )


def check_receipt_condition(workspace: Workspace, content: JSONObject, where: str) -> None:
    """Check that a verified receipt of this workspace is of a condition (InvalidReceipt, InvalidPredicate)."""
    expected = Receipts(workspace.layout.root).condition_hmac(RowPredicate(where).text)
    if not hmac.compare_digest(expected, str(content["condition_hmac_sha256"])):
        raise InvalidReceipt("The receipt is valid, but for another condition or another workspace.")
