"""Measures the pooled Spark session: the program is benchmarks/spark_pool.py.

    python benchmarks/spark.py --stores 8 --rows 100000

A script's folder comes first on its path, and there this file would hide the package `spark` from every
benchmark: so the folder leaves the path, and whoever imports this as `spark` is given the package.
"""

import importlib
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _FOLDER]

if __name__ == "spark":
    del sys.modules["spark"]
    importlib.import_module("spark")

if __name__ == "__main__":
    sys.exit(importlib.import_module("benchmarks.spark_pool").main(sys.argv[1:]))
