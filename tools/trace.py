"""Follow one window of the demo through the package: which modules it visits, which call which.

The window is the demo's last day, which holds digits that were never taught, so it is judged,
reported, registered and told. It is run by `rtscv-mlops run` in this process, after the demo made
its data and its champion.

A module is visited when a function of it is called, or a generator goes on; what runs while a
module is imported does not count. An edge leads from one module of the package to another: from
the nearest caller on the stack that is of the package, so a call through a vendor counts too. The
command line's own modules are where the walk starts, and do not count.
"""

import os
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

UNKNOWNS_EXIT_CODE = 11
IMPORTING = "<frozen importlib"


class Visits:
    """The modules of a folder that are called in a `with` block, and the calls between them."""

    def __init__(self, folder: Path, leave_out: str = "") -> None:
        self.modules: set[str] = set()
        self.edges: set[tuple[str, str]] = set()
        self._folder = f"{folder.resolve()}{os.sep}"
        self._left_out = f"{self._folder}{leave_out}{os.sep}" if leave_out else "\0"

    def __enter__(self) -> "Visits":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not self._is_inside(file):
            return
        caller, up = "", frame.f_back
        while up is not None:
            above = up.f_code.co_filename
            if above.startswith(IMPORTING):
                return
            caller = caller or (above if above.startswith(self._folder) else "")
            up = up.f_back
        self.modules.add(self._name(file))
        if caller != file and self._is_inside(caller):
            self.edges.add((self._name(caller), self._name(file)))

    def _is_inside(self, file: str) -> bool:
        return file.startswith(self._folder) and not file.startswith(self._left_out)

    def _name(self, file: str) -> str:
        return file.removeprefix(self._folder).removesuffix(".py").replace(os.sep, ".")


def trace_window(package: Path) -> Visits:
    """Run the demo's last window by the command line, and return what it visited."""
    # MLflow and Evidently report usage to their makers unless told not to.
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    from rtscv_mlops import demo
    from rtscv_mlops.cli import commands

    *_, day = demo.make_days()
    before = sys.argv
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        demo.prepare(Path(folder), [day])
        file = Path(folder, f"{demo.MODEL}.yaml")
        sys.argv = ["rtscv-mlops", "run", str(file), "--window", f"{day.interval.start:%Y-%m-%d}"]
        try:
            with Visits(package, leave_out="cli") as visits:
                commands.main()
        except SystemExit as end:
            if end.code != UNKNOWNS_EXIT_CODE:
                raise
        finally:
            sys.argv = before
    return visits
