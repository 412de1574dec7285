"""Where everything meets: one window from end to end, and what people do about it.

take_window -> rectify_window -> write_report -> register_challenger -> raise_alert, then
review_challenger -> promote. The Airflow tasks and the commands are thin skins over this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rtscv_mlops.pipeline.record import find_report, save_report
from rtscv_mlops.pipeline.review import (
    Answer,
    Question,
    approve_as_baseline,
    ask_reviewer,
    carry_out_answer,
    collect_answer,
    find_answer,
    list_challengers,
    promote_challenger,
    question_id,
    review_challenger,
    roll_back,
    show_challenger,
    undo_roll_back,
    verify_audit,
)

if TYPE_CHECKING:
    from rtscv_mlops.pipeline.doctor import Check, check_monitor
    from rtscv_mlops.pipeline.purge import Purged, purge_windows
    from rtscv_mlops.pipeline.run import Outcome, run_window
    from rtscv_mlops.pipeline.score import Score, score_window
    from rtscv_mlops.pipeline.setup import register_champion, write_monitor

_LOOKS_AT_ROWS = {
    "Check": "doctor",
    "Outcome": "run",
    "Purged": "purge",
    "Score": "score",
    "check_monitor": "doctor",
    "purge_windows": "purge",
    "register_champion": "setup",
    "run_window": "run",
    "score_window": "score",
    "write_monitor": "setup",
}
"""Where a name is, of those that load a second of libraries more than an answer needs."""

__all__ = [
    "Answer",
    "Check",
    "Outcome",
    "Purged",
    "Question",
    "Score",
    "approve_as_baseline",
    "ask_reviewer",
    "carry_out_answer",
    "check_monitor",
    "collect_answer",
    "find_answer",
    "find_report",
    "list_challengers",
    "promote_challenger",
    "purge_windows",
    "question_id",
    "register_champion",
    "review_challenger",
    "roll_back",
    "run_window",
    "save_report",
    "score_window",
    "show_challenger",
    "undo_roll_back",
    "verify_audit",
    "write_monitor",
]


def __getattr__(name: str) -> Any:
    if name not in _LOOKS_AT_ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOOKS_AT_ROWS[name]}"), name)
