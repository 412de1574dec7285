"""The file formats that can be read. To add one, write its module and add its line here."""

from rtscv_mlops.sources.delimited import open_csv
from rtscv_mlops.sources.files import Format
from rtscv_mlops.sources.parquet import open_parquet

FORMATS = (
    Format("parquet", "Parquet", (".parquet", ".pq"), open_parquet),
    Format("csv", "CSV", (".csv", ".csv.gz", ".tsv", ".tsv.gz"), open_csv),
)
