"""`pipeline check` without Java, or without all of PySpark: it says what it did not check, and checks the rest."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from jobs.bad_jobs import SOUND, place_files
from odradek.spark.pipeline import check, sql_check
from odradek.spark.pipeline.spark_grammar import SparkGrammar


@pytest.mark.parametrize("needed", ["Spark needs Java", "the whole of pyspark is needed: pip install"])
def test_the_sql_is_said_to_be_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed: str) -> None:
    grammar = SparkGrammar()
    for module in (check, sql_check):
        monkeypatch.setattr(module, "GRAMMAR", grammar)
    if find_spec("pyspark.core") is not None:
        # Java that another test started would be used.
        monkeypatch.setattr("pyspark.core.context.SparkContext._gateway", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    if "pyspark" in needed:
        monkeypatch.setitem(sys.modules, "py4j.java_gateway", None)
    place_files(tmp_path)
    file = tmp_path / "job.toml"
    file.write_text(SOUND.replace("subscribe", "subscrbe"), encoding="utf-8")
    found = [str(finding) for finding in check.check_job(file)]
    assert any("did you mean subscribe" in told for told in found), found
    file.write_text(SOUND, encoding="utf-8")
    (only,) = check.check_job(file)
    assert f"the SQL was not checked: {needed}" in only.reason
