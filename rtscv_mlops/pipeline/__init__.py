"""Where everything meets: one window from end to end, and what people do about it.

take_window -> rectify_window -> write_report -> register_challenger -> raise_alert, then
review_challenger -> promote. The Airflow tasks and the commands are thin skins over this.
"""

from rtscv_mlops.pipeline.doctor import Check, check_monitor
from rtscv_mlops.pipeline.purge import Purged, purge_windows
from rtscv_mlops.pipeline.review import (
    Answer,
    Question,
    approve_as_baseline,
    ask_reviewer,
    collect_answer,
    find_answer,
    list_challengers,
    promote_challenger,
    question_id,
    review_challenger,
    roll_back,
    show_challenger,
    verify_audit,
)
from rtscv_mlops.pipeline.run import Outcome, run_window
from rtscv_mlops.pipeline.score import Score, score_window
from rtscv_mlops.pipeline.setup import register_champion, write_monitor
from rtscv_mlops.pipeline.stages import find_report, save_report

__all__ = [
    "Answer",
    "Check",
    "Outcome",
    "Purged",
    "Question",
    "Score",
    "approve_as_baseline",
    "ask_reviewer",
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
    "verify_audit",
    "write_monitor",
]
