"""The program of a fresh process that uses a stored model as its users do.

It does not import this package, which users of the model need not install.
Arguments: the model's folder, a file of rows or "" for the model's own example, the seconds of CPU
that it may use, and JSON with the thresholds of the garbage collector and the modules that skops
should not import.
"""

import gc
import json
import sys
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def prepare(thresholds: list[int], adapters: list[str]) -> None:
    """Import what every model needs, without modules that only make the import slow."""
    gc.set_threshold(*thresholds)
    sys.modules.update(dict.fromkeys(adapters))  # type: ignore[arg-type]  # None blocks an import
    try:
        import skops.io  # noqa: F401
    except ImportError:
        pass
    for name in adapters:
        del sys.modules[name]
    import mlflow.pyfunc  # noqa: F401


def predict(folder: str, file: str) -> list[Any]:
    """Return what the model in a folder predicts for the rows of a file."""
    import mlflow.pyfunc
    import numpy as np
    import pandas as pd

    model = mlflow.pyfunc.load_model(folder)
    rows: Any
    if file.endswith(".npy"):
        rows = np.load(file, allow_pickle=False)
    elif file:
        rows = pd.read_parquet(file)
    else:
        rows = model.input_example
    predictions: list[Any] = np.asarray(model.predict(rows)).ravel().tolist()
    return predictions


def main() -> None:
    """Print the predictions as JSON on the last line, after any output of libraries."""
    folder, file, cpu_seconds, constants = sys.argv[1:]
    if resource is not None:
        # On a busy machine, time on the wall says nothing about a model.
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds) + 1))
    prepare(**json.loads(constants))
    sys.stdout.write(f"\n{json.dumps(predict(folder, file))}\n")


# A child process that a model starts imports this file, and must not run the trial again.
if __name__ == "__main__":
    # This entry is this file's folder, whose modules could hide those of a model.
    sys.path[0] = ""
    main()
