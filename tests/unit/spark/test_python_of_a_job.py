"""Functions, formats and packages that a job names: what is wrong is told with its line, before Spark starts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import JobError
from odradek.spark.pipeline import Job
from odradek.spark.pipeline.check import check_job
from odradek.spark.pipeline.functions import FunctionName
from odradek.spark.pipeline.python_sink import PythonSink
from odradek.spark.pipeline.sink_specs import PythonSinkSpec

JOB = """\
[source]
path = "data"
subscribe = "orders"
[source.value]
format = "json"
schema = "order.ddl"
[offsets]
store = "file:offsets.json"
[[udf]]
name = "net"
function = "shop_functions:net"
returns = "double"
[[transform]]
view = "clean"
python = "shop_functions:clean"
input = "records"
[[transform]]
view = "paid"
sql = "SELECT data.id, net(data.amount) AS net FROM records"
[[sink]]
type = "console"
view = "clean"
"""
MODULE = """\
raise_when_imported = 1 / 0

def clean(records):
    return records

net = lambda amount: amount / 1.19
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
    (tmp_path / "shop_functions.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "order.ddl").write_text("id BIGINT, amount DOUBLE", encoding="utf-8")
    before = list(sys.path)
    yield tmp_path / "job.toml"
    sys.path[:] = before
    sys.path_importer_cache.clear()


@pytest.mark.slow
def test_names_are_checked_and_nothing_is_run(file: Path) -> None:
    file.write_text(JOB, encoding="utf-8")
    assert check_job(file) == []
    assert "shop_functions" not in sys.modules


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("replaced", "by", "told"),
    [
        ("shop_functions:clean", "shop_functions:claen", "has no function claen; did you mean clean?"),
        ('input = "records"', 'input = "recrods"', "line 16: transform[0].input: there is no view 'recrods'; did you"),
        ('input = "records"', 'sql = "SELECT 1"', "line 13: transform[0]: give one of sql and python"),
        ('"json"', '"protobuf"', "line 4: source.value.message: the name of a message for format = "),
        ('"json"', '"json"\nmessage = "Order"', "line 6: source.value.message: the name of a message for format = "),
        ('"json"', '"json"\ncolumn = "VALUE"', "line 6: source.value.column: 'VALUE' is not a new name of a column"),
        ('"json"', '"json"\noptions = { mode = "FALFAST" }', "line 6: source.value.options: the modes of json are "),
        ('"json"', '"json"\noptions.Mode = "DROPMALFORMED"', "line 6: source.value.options: the modes of json are "),
        ('"console"', '"console"\nrows = 99999999999', "line 22: sink[0].rows: a number of rows from 0 to "),
        ("data.id", "dtaa.id", "line 19: transform[1].sql: there is no view or alias dtaa"),
        ('"json"', '"json"\nskip_byte = 5', "line 6: source.value.skip_byte: unknown key; did you mean skip_bytes?"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(file: Path, replaced: str, by: str, told: str) -> None:
    assert replaced in JOB
    file.write_text(JOB.replace(replaced, by, 1), encoding="utf-8")
    findings = [str(finding) for finding in check_job(file)]
    assert len(findings) == 1
    assert told in findings[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            'type = "python"\nfunction = "shop_functions:clean"\npositions = "nowhere:positions"',
            "line 26: sink[1].positions: there is no module nowhere",
        ),
        (
            'type = "python"\nfunction = "shop_functions:clean"\non_held = "replay"',
            "line 26: sink[1].on_held: error or",
        ),
        ('type = "python"\nfunction = "shop_functions:clean"\nview = "clen"', "no view 'clen'; did you mean clean?"),
        ('type = "jdbc"\nurl = "jdbc:x:y"\ntable = "t"\nmode = "w"', "line 27: sink[1].mode: unknown key"),
        ('type = "delta"\npath = "x"\ntable = "t"', "line 26: sink[1].table: give one of table and path"),
        ('type = "delta"\npath = "x"', "line 24: sink[1].type: this needs io.delta:delta-spark_2.13, which is not "),
        ('type = "iceberg"\ntable = "t"', "line 24: sink[1].type: this needs org.apache.iceberg:iceberg-spark-runtime"),
    ],
)
def test_what_is_wrong_with_a_sink_is_told_with_its_line(file: Path, keys: str, told: str) -> None:
    file.write_text(f"{JOB}[[sink]]\n{keys}\n", encoding="utf-8")
    findings = [str(finding) for finding in check_job(file)]
    assert len(findings) == 1
    assert told in findings[0]


def test_a_json_schema_is_not_taken_for_one_of_spark(file: Path) -> None:
    (file.parent / "order.ddl").write_text('{"$schema": "x", "type": "object"}', encoding="utf-8")
    file.write_text(JOB, encoding="utf-8")
    with pytest.raises(JobError, match=r"line 6: source\.value\.schema: .*a JSON Schema cannot be used"):
        Job.read(file)


def test_a_package_that_spark_lacks_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(file.parent / "spark"))
    file.write_text(f'{JOB}[[sink]]\ntype = "delta"\npath = "x"\n', encoding="utf-8")
    assert [str(finding) for finding in check_job(file)] == [
        f"{file}: line 24: sink[1].type: this needs io.delta:delta-spark_2.13, which is not among Spark's "
        "jars: name it, with the version for your Spark, in spark.conf: spark.jars.packages"
    ]
    (file.parent / "spark" / "jars" / "delta-spark_2.13-4.3.0.jar").touch()
    assert check_job(file) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}', None),
        ('["null", "int", "string"]', "line 6: source.value.schema: no schema of avro: a union of 2 types cannot be"),
        ('{"type": "recrod", "name": "Order", "fields": []}', "line 6: source.value.schema: no schema of avro: "),
        (
            '{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}',
            "line 6: source.value.schema: no schema of avro: N is a part of itself",
        ),
    ],
)
def test_a_schema_of_avro_is_checked(file: Path, schema: str, told: str | None) -> None:
    (file.parent / "order.ddl").write_text(schema, encoding="utf-8")
    file.write_text(JOB.replace('"json"', '"avro"'), encoding="utf-8")
    findings = [str(finding) for finding in check_job(file)]
    assert [told] * len(findings) == [told for finding in findings if told and told in finding]
    assert bool(findings) is (told is not None)


def test_what_an_import_raises_is_told_with_its_place(file: Path) -> None:
    named = FunctionName.parse("shop_functions:net", "udf[0].function", file.parent)
    with pytest.raises(JobError, match=r"udf\[0\]\.function: ZeroDivisionError: .*shop_functions\.py, line 1, in <mod"):
        named.load("udf[0].function")
    (file.parent / "a_program.py").write_text("import sys\nsys.exit()\n", encoding="utf-8")
    with pytest.raises(JobError, match=r"udf\[0\]\.function: SystemExit \(.*a_program\.py, line 2, in <module>"):
        FunctionName.parse("a_program:net", "", file.parent).load("udf[0].function")


def test_nothing_of_a_package_is_run_by_a_check(file: Path) -> None:
    package = file.parent / "a_package"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("raise SystemExit(0)", encoding="utf-8")
    (package / "inner" / "shop.py").write_text("def clean(records): return records", encoding="utf-8")
    names = ("a_package.inner.shop:clean", "a_package.inner.shop:claen", "a_package.shop:clean", "json.shop:clean")
    problems = [FunctionName.parse(name, "", file.parent).problem() for name in names]
    assert problems[0] is None
    assert problems[1] == "the module a_package.inner.shop has no function claen; did you mean clean?"
    assert all("there is no module" in (problem or "") for problem in problems[2:])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def net(: x", r"SyntaxError: invalid syntax \(.*\.py, line 1\)$"),
        (
            "import no_such_module_of_all",
            r"ModuleNotFoundError: No module named 'no_such_module_of_all' \(.*, line 1, in",
        ),
        ("net = 5", r"has no function net$"),
        (
            "class Odd(Exception):\n    def __str__(self): raise KeyError\nraise Odd",
            r"Odd: no text: its __str__ fails with KeyError \(.*, line 3, in <module>\)$",
        ),
    ],
    ids=["syntax", "import", "no function", "no text"],
)
def test_what_keeps_a_module_from_being_loaded_is_told_with_its_place(file: Path, text: str, told: str) -> None:
    module = f"unfit_{abs(hash(text))}"
    (file.parent / f"{module}.py").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match=told):
        FunctionName(module, "net", file.parent).load("udf[0].function")


@pytest.mark.slow
def test_modules_of_other_jobs_of_the_process_are_no_finding(tmp_path: Path) -> None:
    names = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        (folder / "twice_given").mkdir(parents=True)
        (folder / "twice_given" / "__init__.py").touch()
        (folder / "twice_given" / "part.py").write_text("def net(): ...", encoding="utf-8")
        names.append(FunctionName("twice_given.part", "net", folder))
    first, second = names
    assert first.problem() is None
    first.load("udf[0].function")
    assert second.problem() is None
    # Here, however, Python has the other one.
    with pytest.raises(JobError, match=r"Python takes .*/a/.* for twice_given\.part"):
        second.load("udf[0].function")
    assert first.problem() is None


def test_a_module_that_is_taken_for_the_one_beside_the_file_is_named(file: Path) -> None:
    (file.parent / "json.py").write_text("def clean(records): return records", encoding="utf-8")
    named = FunctionName("json", "clean", file.parent)
    told = r"Python takes .*json.__init__\.py for json, not .*json\.py: give it another name"
    assert re.match(told, named.problem() or "")
    with pytest.raises(JobError, match=told):
        named.load("transform[0].python")


@pytest.mark.slow
@pytest.mark.parametrize(
    "found", ['{("orders", "0"): 5}', '{"o0": 5}', '{("orders", 0): "5"}', '[("orders", 0, 5)]', "7"]
)
def test_positions_that_would_match_nothing_are_refused(file: Path, found: str) -> None:
    module = f"positions_{abs(hash(found))}"
    (file.parent / f"{module}.py").write_text(f"def store(rows, batch): pass\ndef positions(): return {found}\n")
    names = [FunctionName(module, name, file.parent) for name in ("store", "positions")]
    sink = PythonSink(PythonSinkSpec(names[0], "records", names[1]), "sink[0]")
    with pytest.raises(JobError, match=r"sink\[0\]\.positions: .* must return the next offset by topic and partition"):
        sink.positions()
