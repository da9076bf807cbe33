"""/v1/receipts: signed receipts of forgotten rows."""

from datetime import datetime

from fastapi import APIRouter
from fastapi.responses import Response

from service import product
from service.http.api.resources import Limit, Ours, PageShape, Shape, media_type_responses

router = APIRouter(prefix="/v1")


class ReceiptSummaryShape(Shape):
    """A receipt of forgotten rows; `proof` is "proved", "subtracted, proof pending" or "not proved"."""

    id: str
    at: datetime
    subject: str
    n_rows: int
    proof: str


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
