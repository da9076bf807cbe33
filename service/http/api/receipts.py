"""/v1/receipts: signed receipts of forgotten rows."""

from datetime import datetime
from typing import Literal

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response

from service import product
from service.http.api.resources import BYTES_BODY, Limit, Ours, PageShape, Shape, media_type_responses
from service.requests.roles import needs_role
from storage.control.api_keys_and_sessions import Role

router = APIRouter(prefix="/v1")


class ReceiptSummaryShape(Shape):
    """A receipt of forgotten rows; `proof` is "proved", "subtracted, proof pending" or "not proved"."""

    id: str
    at: datetime
    subject: str
    n_rows: int
    proof: str


class ReceiptVerdictShape(Shape):
    """Whether a receipt holds: `verdict` is "valid", "altered" or "unknown key", and `detail` says it in a sentence."""

    verdict: Literal["valid", "altered", "unknown key"]
    id: str | None
    detail: str


@router.get("/receipts", name="list_all", tags=["receipts"], summary="List receipts of forgotten rows")
def list_receipts_endpoint(
    workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[ReceiptSummaryShape]:
    """List the receipts, newest first; `id` is that of the job."""
    return PageShape[ReceiptSummaryShape].model_validate(product.list_receipts(workspace, limit, cursor))


@router.get(
    "/receipts/{receipt_id}",
    name="get",
    tags=["receipts"],
    summary="Get a receipt",
    response_class=Response,
    responses=media_type_responses("application/json"),
)
def get_receipt_endpoint(receipt_id: str, workspace: Ours) -> Response:
    """Return a signed receipt, byte for byte as it was written."""
    return Response(product.read_receipt(workspace, receipt_id), media_type="application/json")


@router.post("/receipts/verify", name="verify", tags=["receipts"], summary="Verify a receipt", openapi_extra=BYTES_BODY)
@needs_role(Role.READ)
async def verify_receipt_endpoint(workspace: Ours, request: Request) -> ReceiptVerdictShape:
    """Verify the file of a receipt with the key of this workspace; nothing is stored."""
    body = await request.body()
    verdict = await anyio.to_thread.run_sync(product.receipt_verdict, workspace, body)
    return ReceiptVerdictShape.model_validate(verdict)
