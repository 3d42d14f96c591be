"""Whatever is searched for, in whatever bytes: what is found is what decoding everything and `re` find."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.errors import FormatError
from odradek.inspection.log_files import FileKind, LogFile
from odradek.inspection.record_json import LineWriter
from odradek.inspection.record_lines import RecordLines
from odradek.inspection.searching import file_search
from odradek.inspection.searching import pattern as pattern_module
from odradek.inspection.searching.context_window import ContextWindow
from odradek.inspection.searching.file_search import FileSearch
from odradek.inspection.searching.part_search import Context, Row, SearchOptions
from odradek.inspection.searching.pattern import FIELDS, Field, RecordPattern
from odradek.inspection.searching.re2_pattern import re2_pattern
from odradek.inspection.searching.required_literals import required_literals
from odradek.inspection.selection import DumpSelection
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.sources.re2 import re2_judge
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped
from odradek.testing.message_builder import build_message_set

# Few letters, so that patterns match: among them such that other letters are the same as, and bytes that are no UTF-8.
LETTERS = ["a", "b", "k", "s", "i", "K", "B", " ", "\n", "ß", "ſ", "\u212a", "ı", "é", "É", "\udcff", "\udcc3", "0"]
texts = st.text(st.sampled_from(LETTERS), max_size=8)
contents = st.none() | texts.map(lambda text: text.encode("utf-8", "surrogateescape"))
names = st.text(st.sampled_from([letter for letter in LETTERS if not "\ud800" <= letter <= "\udfff"]), max_size=3)
records = st.builds(
    Record,
    contents,
    contents,
    st.lists(st.tuples(names, contents), max_size=2),
    st.integers(1_700_000_000_000, 1_700_000_000_020),
)
pieces = st.sampled_from(
    [
        *map(re.escape, LETTERS),
        *["ab", "bak", ".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", "^", "$", r"\b", r"\B", r"\A", r"\Z", ""],
        *["[ab]", "[^a]", "[a-k]", "[Z-a]", r"[^\w]", r"[\W0]"],
    ]
)


repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,1}", "+?"])
selections = st.sampled_from(
    [DumpSelection(), DumpSelection(3, 9), DumpSelection(None, None, 1_700_000_000_004, 1_700_000_000_015)]
)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
        | st.tuples(inner, repeats).map(lambda two: f"(?:{two[0]}){two[1]}")
        | st.tuples(st.sampled_from(["i", "m", "s", "a", "-i"]), inner).map(lambda two: f"(?{two[0]}:{two[1]})")
        | inner.map(lambda one: f"({one})")
        | inner.map(lambda one: f"(?={one})")
        | inner.map(lambda one: f"(?!{one})")
        | inner.map(lambda one: f"(?>{one})")
    )


patterns = st.recursive(pieces, _compound, max_leaves=6)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _matches(regex: re.Pattern[str], record: Record, fields: set[Field]) -> bool:
    contents = [record.key] if "key" in fields else []
    contents += [record.value] if "value" in fields else []
    texts = [_text(data) for data in contents if data is not None]
    if "headers" in fields:
        texts += [name for name, _ in record.headers]
        texts += [_text(data) for _, data in record.headers if data is not None]
    return any(regex.search(text) for text in texts)


@pytest.mark.slow
@given(patterns, texts, st.sampled_from([0, re.IGNORECASE]))
@example("(?i:straSSe)", "stra\u017f\u017fe", 0)
@example("a(?=ab)b", "ab", 0)
def test_what_matches_has_a_literal_that_is_required(pattern: str, text: str, flags: int) -> None:
    regex = re.compile(pattern, flags)
    literals = required_literals(regex)
    data = text.encode("utf-8", "surrogateescape")
    assert (
        not literals
        or not regex.search(text)
        or any(
            literal.data.lower() in data.lower() if literal.ignores_case else literal.data in data
            for literal in literals
        )
    )


@pytest.mark.slow
@given(patterns, st.lists(texts, max_size=8), st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII]))
def test_re2_matches_what_python_matches(pattern: str, some: list[str], flags: int) -> None:
    regex = re.compile(pattern, flags)
    translated = re2_pattern(regex)
    if translated is None:
        return
    plain = ["", *(text for text in some if not re.search("[\ud800-\udfff]", text))]
    if translated.is_of_ascii:
        plain = [text for text in plain if text.isascii()]
    found = pc.match_substring_regex(pa.array(plain, pa.large_string()), translated.pattern)
    assert found.to_pylist() == [regex.search(text) is not None for text in plain]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        "(?=a)b",
        "(?<!a)b",
        "(?>a)b",
        "a*+b",
        "a$b",
        r"\B",
        "(?:a*)*b",
        "a{1001}",
        "(?i)ß",
        r"(?a)\w",
        "\udcff",
        "(" * 400 + "a." + ")" * 400,
    ],
)
def test_what_re2_has_no_word_for_is_left_to_python(pattern: str) -> None:
    assert re2_pattern(re.compile(pattern)) is None


def test_records_without_any_text_do_not_match() -> None:
    batch = build_batch([Record(None, None), Record(None, None)])
    (table,) = scan_batches(batch).tables()
    judge = re2_judge(".*")
    assert judge is not None
    search = RecordPattern(".*").search(DumpSelection())
    search.search(table, 0, batch)
    marks, texts = search.take()
    assert texts is not None
    assert len(memoryview(marks).cast("q")) == len(texts) == 2
    assert judge(texts) == bytes(2)


@pytest.mark.parametrize("pattern", ["(?:a{1000}){1000}", "((a{100}){100}){100}"])
def test_what_is_too_large_for_re2_is_left_to_python(pattern: str) -> None:
    translated = re2_pattern(re.compile(pattern))
    assert translated is not None
    assert re2_judge(translated.pattern) is None


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Return batches of each format, some of them damaged."""
    data = bytearray()
    offset = 0
    for _ in range(draw(st.integers(1, 6))):
        table = draw(st.lists(records, min_size=1, max_size=5))
        numbered = [Record(r.key, r.value, r.headers, r.timestamp, offset + index) for index, r in enumerate(table)]
        offset += len(table)
        magic = draw(st.sampled_from([2, 2, 2, 1, 0]))
        if magic == 2 and draw(st.sampled_from([False, False, False, True])):
            data += build_batch(numbered, keep_offsets=True, is_control=True)
        elif magic == 2:
            data += build_batch(numbered, keep_offsets=True, codec=draw(st.sampled_from(list(Codec))))
        else:
            bare = [Record(r.key, r.value, (), r.timestamp, r.offset) for r in numbered]
            codec = draw(st.sampled_from(list(Codec)[:4]))
            data += build_message_set(bare, magic=magic, codec=codec, keep_offsets=True)
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


def _expected(
    path: Path, regex: re.Pattern[str], fields: set[Field], selection: DumpSelection, invert: bool
) -> tuple[list[Row], list[Damage], list[Damage]]:
    """Return all records that are looked at, the damage of batches, and that of records within batches."""
    rows: list[Row] = []
    damages: list[Damage] = []
    of_records: list[Damage] = []
    with mapped(path) as data:
        for header in BatchReader(path, data, damages.append):
            try:
                of_batch = [] if header.is_control else read_records(data, header)
            except FormatError as error:
                of_records.append(damage_of(path, header, error))
                continue
            rows += [
                Row(record, _matches(regex, record, fields) is not invert)
                for record in of_batch
                if selection.takes(record)
            ]
    return rows, damages, of_records


def _grepped(rows: list[Row], context: Context) -> list[Row]:
    """Return what grep prints, by its definition."""
    found = [index for index, row in enumerate(rows) if row.is_found]
    return [
        row for index, row in enumerate(rows) if any(-context.before <= index - one <= context.after for one in found)
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(
    segments(),
    patterns,
    st.booleans(),
    st.sets(st.sampled_from(FIELDS), min_size=1),
    st.booleans(),
    selections,
    st.sampled_from([Context(), Context(), Context(1, 0), Context(0, 2), Context(3, 3)]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 100, 1 << 20]),
    st.sampled_from([0, 1 << 20]),
)
def test_what_is_found_is_what_decoding_everything_finds(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    pattern: str,
    ignore_case: bool,
    fields: set[Field],
    invert: bool,
    selection: DumpSelection,
    context: Context,
    threads: int,
    part_bytes: int,
    few: int,
) -> None:
    path = tmp_path_factory.mktemp("search") / "00000000000000000000.log"
    path.write_bytes(data)
    regex = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    expected, of_batches, of_records = _expected(path, regex, fields, selection, invert)
    damages: list[Damage] = []
    failures: list[Exception] = []
    wanted = RecordPattern(pattern, ignore_case=ignore_case, fields=fields, invert=invert, load_re2=re2_judge)
    search = FileSearch(
        SearchOptions(wanted, selection, context),
        read_committed=False,
        threads=threads,
        damaged=damages.append,
        failed=failures.append,
    )
    window = ContextWindow(context)
    lines = RecordLines("jsonl", None)
    written, count = b"", 0
    found: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_search, "_PART_BYTES", part_bytes)
        # Whether RE2 is tried, or Python's expressions alone.
        patch.setattr(pattern_module, "_FEW", few)
        for _, part in search.run([LogFile(path, FileKind.RECORDS)]):
            blocks = [*part.lines(lines), lines.rest()]
            written += b"".join(bytes(memoryview(block)) for block in blocks)
            count += part.count
            found += [row for row, _ in window.rows(part.rows())] if context != Context() else []
    matching = [row.record for row in expected if row.is_found]
    assert written == b"".join(map(LineWriter("jsonl", None), matching))
    assert count == len(matching)
    assert found == (_grepped(expected, context) if context != Context() else [])
    assert not failures
    # A batch without a literal is not decoded, so nobody learns that its records contradict its header.
    assert set(of_batches) <= set(damages) <= {*of_batches, *of_records}
    assert len(set(damages)) == len(damages)
