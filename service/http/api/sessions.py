"""/console/session: a key for a session, so that a browser never keeps the key itself."""

from datetime import timedelta
from http import HTTPStatus
from urllib.parse import parse_qs

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from service.http.security import Guard
from service.http.sessions import LIFETIME_S, cookie_name, origin_of, session_cookie
from service.requests.problems import problem_of
from service.workspace import Workspace
from storage.control.access import end_session, open_session, session_sha256, token_sha256
from storage.errors import InvalidKey

PATH = "/console/session"
HOME = "/console"
MAX_BODY = 16_384


def routes() -> list[Route]:
    """To sign in, and to sign out."""
    return [Route(PATH, sign_in, methods=["POST"]), Route(f"{PATH}/end", sign_out, methods=["POST"])]


async def sign_in(request: Request) -> Response:
    """Exchange the key of a form for a cookie that scripts cannot read and other sites cannot send."""
    guard: Guard = request.app.guard
    headers = request.scope["fewpass.headers"]
    guard.visitors.check(request.method, request.url.scheme, headers)
    form = parse_qs((await request.body())[:MAX_BODY].decode("utf-8", "replace"))
    token, page = form.get("key", [""])[0].strip(), form.get("next", [HOME])[0]
    try:
        guard.key(token.encode())
    except InvalidKey as error:
        problem = problem_of(error)
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return RedirectResponse(f"{HOME}/login?refused=1", HTTPStatus.SEE_OTHER, headers={"x-problem": problem.slug})
    workspace: Workspace = request.app.state.workspace
    origin = origin_of(request.url.scheme, headers)
    lifetime = timedelta(seconds=LIFETIME_S)
    session_id = await anyio.to_thread.run_sync(
        open_session, workspace.control, token_sha256(token.encode()), origin, lifetime
    )
    answer = RedirectResponse(local(page), HTTPStatus.SEE_OTHER)
    is_https, name = request.url.scheme == "https", cookie_name(headers)
    answer.set_cookie(name, session_id, max_age=LIFETIME_S, secure=is_https, httponly=True, samesite="strict")
    return answer


async def sign_out(request: Request) -> Response:
    """End the session, on the server and in the browser."""
    headers = request.scope["fewpass.headers"]
    session_id = session_cookie(headers)
    if session_id is not None:
        guard: Guard = request.app.guard
        workspace: Workspace = request.app.state.workspace
        await anyio.to_thread.run_sync(end_session, workspace.control, session_sha256(session_id))
        guard.sessions.forget(session_sha256(session_id))
    answer = Response(status_code=HTTPStatus.NO_CONTENT)
    answer.delete_cookie(cookie_name(headers), httponly=True, samesite="strict")
    return answer


def local(path: str) -> str:
    """A path of this server as it is; the first page in place of anything else."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours and path.split("?")[0].startswith(HOME) else HOME
