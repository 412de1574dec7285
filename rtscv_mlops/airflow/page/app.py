"""The routes of the plugin, all of them guarded: pages to read, and one that takes answers."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as AnyHTTPException

from rtscv_mlops.airflow.monitors import (
    APPROVE,
    PREFIX,
    Task,
    dag_id_of,
    monitors_folder,
    reviewer_name,
)
from rtscv_mlops.airflow.page import data, views
from rtscv_mlops.airflow.page.data import Gatherer, GetUserDep, find_interval, find_questions
from rtscv_mlops.airflow.page.timeline import LONG, window_label
from rtscv_mlops.config.loading import read_monitors
from rtscv_mlops.config.monitor import Monitor
from rtscv_mlops.errors import Code, ReviewError, RtscvError
from rtscv_mlops.outcomes import ReviewChannel
from rtscv_mlops.text import (
    NOISE,
    Label,
    effect,
    exemplar_columns,
    number,
    percent,
    plain,
    quantity,
)

PREFIX_OF_PAGES = "/rtscv"
REASON_LIMIT = 1500
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A report may hold script that came with the data: it runs in an origin of its own, without
# access to anything.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)
STATIC = {"page.css": "text/css", "page.js": "text/javascript"}
ABSENT = (Code.NO_RUN, Code.NO_DAG_RUN, Code.ARTIFACT_MISSING)

FOLDER = Path(__file__).parent


class PageAnswer(BaseModel):
    """A reviewer's answer, and what it is about."""

    version: str = Field(max_length=20)
    question: str = Field(max_length=300)
    option: Literal["Approve", "Reject"]
    reason: str = Field(default="", max_length=REASON_LIMIT)


class NotFound(HTTPException):
    """What was requested does not exist, as far as this user may know."""

    def __init__(self, sentence: str) -> None:
        super().__init__(HTTPStatus.NOT_FOUND, sentence)


def find_monitor(dag_id: str) -> Monitor:
    """Return the monitor behind a DAG."""
    for monitor in read_monitors(monitors_folder()).values():
        if isinstance(monitor, Monitor) and dag_id_of(monitor) == dag_id:
            return monitor
    raise NotFound(f"No monitor belongs to the DAG {plain(dag_id)}, or its file cannot be used.")


MonitorDep = Annotated[Monitor, Depends(find_monitor)]


def create_app() -> FastAPI:
    """Return the app, ready to be mounted by Airflow."""
    app = FastAPI(
        title="rtscv-mlops",
        dependencies=[data.guarded()],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    gatherer, of_dag = Gatherer(), [data.readable_dag()]

    @app.get("/", response_class=HTMLResponse)
    def show_monitors(request: Request, user: GetUserDep) -> Response:
        cards = _cards(user, gatherer)
        return _page(
            request,
            "monitors.html",
            cards=cards,
            waiting=sum(bool(card.pending_run) for card in cards),
            legend=views.legend(),
        )

    @app.get("/static/{name}")
    def send_static(name: str) -> Response:
        if name not in STATIC:
            raise NotFound(f"There is no file {plain(name)}.")
        return Response((FOLDER / "static" / name).read_bytes(), media_type=STATIC[name])

    @app.get("/dags/{dag_id}/windows/{run_id}", dependencies=of_dag)
    def show_window(
        request: Request, monitor: MonitorDep, run_id: str, user: GetUserDep, session: SessionDep
    ) -> Response:
        return _window_page(request, monitor, run_id, user, session)

    @app.post("/dags/{dag_id}/answer", dependencies=[*of_dag, data.from_own_page()])
    def take_answer(
        monitor: MonitorDep, answer: PageAnswer, user: GetUserDep, session: SessionDep
    ) -> Response:
        return _record_answer(monitor, answer, user, session)

    @app.get("/dags/{dag_id}/windows/{run_id}/report", dependencies=of_dag)
    def send_report(monitor: MonitorDep, run_id: str) -> Response:
        from rtscv_mlops.operations.overview import read_report

        return HTMLResponse(
            read_report(monitor, run_id), headers={"Content-Security-Policy": REPORT_POLICY}
        )

    @app.get("/dags/{dag_id}/runs/{dag_run_id}", dependencies=of_dag)
    def show_dag_run(
        request: Request,
        monitor: MonitorDep,
        dag_run_id: str,
        user: GetUserDep,
        session: SessionDep,
    ) -> Response:
        from rtscv_mlops.operations.overview import find_window

        interval = find_interval(session, monitor, dag_run_id)
        run_id = find_window(monitor, interval)
        if run_id is None:
            label = window_label(interval.start, interval.end, monitor.airflow.timezone)
            return _message(request, f"The window {label} was not judged yet: no task has read it.")
        return _window_page(request, monitor, run_id, user, session)

    _add_handlers(app)
    return app


def _add_handlers(app: FastAPI) -> None:
    """Give every response its headers, and every error a sentence instead of a traceback."""

    @app.middleware("http")
    async def add_headers(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await call_next(request)
        for name, text in PAGE_HEADERS.items():
            response.headers.setdefault(name, text)
        return response

    @app.exception_handler(RtscvError)
    def explain_ours(request: Request, error: RtscvError) -> Response:
        status = HTTPStatus.NOT_FOUND if error.code in ABSENT else HTTPStatus.BAD_GATEWAY
        return _message(request, str(error), status)

    @app.exception_handler(AnyHTTPException)
    def explain(request: Request, error: AnyHTTPException) -> Response:
        answer = _message(request, str(error.detail), HTTPStatus(error.status_code))
        answer.headers.update(error.headers or {})
        return answer


def _cards(user: GetUserDep, gatherer: Gatherer) -> list[views.Card]:
    """Return a card of each monitor that the user may read, the most urgent first."""
    readable = []
    for path, monitor in read_monitors(monitors_folder()).items():
        # The DAG of a broken file is named after it.
        dag_id = dag_id_of(monitor) if isinstance(monitor, Monitor) else f"{PREFIX}{path.stem}"
        if data.may_read(user, dag_id):
            readable.append((path, dag_id, monitor))
    monitors = [monitor for _, _, monitor in readable if isinstance(monitor, Monitor)]
    summaries = gatherer.look_at(monitors)
    cards = [
        views.monitor_card(monitor, dag_id, summaries[monitor.name], monitor.airflow.timezone)
        if isinstance(monitor, Monitor)
        else views.problem_card(path.stem, dag_id, monitor)
        for path, dag_id, monitor in readable
    ]
    return sorted(cards, key=lambda card: card.rank)


def _window_page(
    request: Request, monitor: Monitor, run_id: str, user: GetUserDep, session: SessionDep
) -> Response:
    from rtscv_mlops.operations import overview

    dag_id = dag_id_of(monitor)
    page = overview.show_window(monitor, run_id)
    questions = find_questions(session, dag_id)
    rights = views.Rights(
        may_review=data.may_review(user, dag_id),
        named_in=frozenset(
            one.question for one in questions if data.is_named(user, set(one.reviewers))
        ),
    )
    decision = views.decide(page, questions, rights, monitor.airflow.timezone)
    view = views.window_view(monitor, dag_id, page, decision)
    # Where Airflow takes runs and answers, also if it is served below a path.
    airflow = _root(request).removesuffix(PREFIX_OF_PAGES)
    runs_at = f"{airflow}/api/v2/dags/{quote(dag_id, safe='')}/dagRuns"
    close_at = ""
    if decision.form:
        dag_run_id = quote(decision.form.dag_run_id, safe="")
        close_at = f"{runs_at}/{dag_run_id}/taskInstances/{Task.REVIEW}/-1/hitlDetails"
    return _page(
        request,
        "window.html",
        view=view,
        close_at=close_at,
        runs_at=runs_at if view.is_unassessed and data.may_trigger(user, dag_id) else "",
        reason_is_required=monitor.review.reason == "required",
    )


def _record_answer(
    monitor: Monitor, answer: PageAnswer, user: GetUserDep, session: SessionDep
) -> Response:
    """Record a decision before it is acknowledged; the waiting task then finds it there."""
    from rtscv_mlops.review.answers import review_challenger

    dag_id = dag_id_of(monitor)
    questions = find_questions(session, dag_id)
    asked = next((one for one in questions if one.question == answer.question), None)
    if asked is None:
        return _refusal(views.CHANGED, HTTPStatus.CONFLICT)
    if not data.may_review(user, dag_id) or not data.is_named(user, set(asked.reviewers)):
        return _refusal("You may not answer this question.", HTTPStatus.FORBIDDEN)
    try:
        decided = review_challenger(
            monitor,
            answer.version,
            approve=answer.option == APPROVE,
            reviewer=reviewer_name(user.get_name(), str(user.get_id())),
            reason=answer.reason.strip(),
            question=answer.question,
            channel=ReviewChannel.AIRFLOW_PAGE,
        )
    except RtscvError as error:
        is_refused = isinstance(error, ReviewError)
        status = HTTPStatus.CONFLICT if is_refused else HTTPStatus.BAD_GATEWAY
        return _refusal(plain(str(error), LONG), status)
    return JSONResponse({"version": decided.version, "review": decided.review})


def _refusal(sentence: str, status: HTTPStatus) -> Response:
    return JSONResponse({"detail": sentence}, status)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _message(request: Request, sentence: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    lines = [plain(line, LONG) for line in sentence.splitlines()[:20]]
    return _page(request, "message.html", status, lines=lines)


def _page(
    request: Request, template: str, status: HTTPStatus = HTTPStatus.OK, **shown: object
) -> Response:
    html = TEMPLATES.get_template(template).render(root=_root(request), **shown)
    return HTMLResponse(html, status)


TEMPLATES = Environment(
    loader=PackageLoader("rtscv_mlops.airflow.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["Label"] = Label
TEMPLATES.globals["NOISE"] = NOISE
TEMPLATES.filters |= {
    "percent": percent,
    "number": number,
    "plain": plain,
    "cell": quantity,
    "effect": effect,
    "columns": exemplar_columns,
    "bar": lambda share: round(100 * min(max(share, 0.0), 1.0), 1) if isfinite(share) else 0.0,
    "segment": lambda text: quote(str(text), safe=""),
}
