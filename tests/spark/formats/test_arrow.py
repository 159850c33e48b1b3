"""Modules that are loaded with the first name that is asked for."""

import pickle
import subprocess
import sys

import pyarrow
import pytest

from spark.formats.arrow import Later, pa
from tests.style.source_files import ROOT

ROWS = 3


def test_module_is_loaded_with_the_first_name_of_it() -> None:
    code = (
        "import sys; from spark.formats.arrow import np, pa, pc, pq; "
        "loaded = {'numpy', 'pyarrow'} & set(sys.modules); "
        f"print(loaded, np.arange({ROWS}).sum(), pa.array([1]).type, 'pyarrow' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "set() 3 int64 True\n"), ran.stderr


def test_name_is_the_one_of_the_module_and_is_asked_for_once() -> None:
    later = Later("pyarrow")
    assert "Table" not in vars(later)
    assert later.Table is pyarrow.Table
    assert vars(later)["Table"] is pyarrow.Table


def test_name_that_a_module_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = Later("pyarrow").no_such_name


def test_it_travels_as_the_module_itself() -> None:
    assert pickle.loads(pickle.dumps(pa)) is pyarrow
