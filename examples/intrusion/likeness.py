"""How much a new attack looks like what is known: the measured side of why rows were missed.

Rows are compared as the logarithms of their numbers, in standard deviations, beside their three
words. A row is near if it lies no farther from the closest known row than most known rows that
were served the same days. Knows rows and distances; nothing here takes part in a verdict.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from examples.intrusion.champion import WORDS
from examples.intrusion.traffic import LABEL, features_of, thin

REFERENCE_ROWS = 20_000
USUAL_ROWS = 2_000
MOST = 0.9
"""Share of the known rows of these days that count as near."""


def find_nearest(known: pd.DataFrame, usual: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return for each new row the type of the closest known row, and whether it is near.

    `usual` are rows of known types that were served beside the new ones.
    """
    known = thin(known, REFERENCE_ROWS)
    usual = usual.sample(min(USUAL_ROWS, len(usual)), random_state=0)
    numbers = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    prepared = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), WORDS),
        (numbers, make_column_selector(dtype_include="number")),
    ).fit(features_of(known))
    search = NearestNeighbors(n_neighbors=1).fit(prepared.transform(features_of(known)))
    (usually, _), (distance, place) = (
        search.kneighbors(prepared.transform(features_of(rows))) for rows in (usual, new)
    )
    return pd.DataFrame(
        {
            "closest": known[LABEL].to_numpy()[place[:, 0]],
            "near": distance[:, 0] <= np.quantile(usually, MOST),
        },
        index=new.index,
    )
