"""Would it have been found? Known classes hidden, and who finds them. Nothing is written."""

from rtscv_mlops.pipeline.bench.hiding import Case, hide_classes
from rtscv_mlops.pipeline.bench.judging import Record, judge
from rtscv_mlops.pipeline.bench.run import Labelled, bench, run_bench
from rtscv_mlops.pipeline.bench.summary import Bench, Row

__all__ = [
    "Bench",
    "Case",
    "Labelled",
    "Record",
    "Row",
    "bench",
    "hide_classes",
    "judge",
    "run_bench",
]
