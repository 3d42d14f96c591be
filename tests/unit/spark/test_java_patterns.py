from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from odradek.errors import OptionError
from odradek.spark.java_patterns import java_pattern

NAMES = ["orders", "Orders", "orders-7", "a.b", "a_b", "aXb", "x", "7", "42", "_", "-", ".", "ab]", "[", "a b", "aa"]
PATTERNS = [
    r"orders.*",
    r"\p{Alpha}+",
    r"\p{Lower}+-\p{Digit}",
    r"[\p{Alpha}_]+",
    r"[^\p{Punct}]+",
    r"\P{Alpha}",
    r"[\P{Alnum}a-c]+",
    r"\p{L}+\p{N}*",
    r"\pL+",
    r"\p{Lu}.*",
    r"\p{IsAlphabetic}+",
    r"\p{javaLowerCase}+",
    r"\p{IsLatin}+",
    r"\p{general_category=Nd}+",
    r"\p{InBasicLatin}",
    r"\p{Lo}|x",
    r"\p{Graph}\p{Graph}",
    r"\p{XDigit}+",
    r"a\p{Blank}b",
    r"\Qa.b\E",
    r"\Qa.b\E|\Qaa",
    r"[\Q.-]\E]",
    r"(?<first>.)\k<first>",
    r"(?i)ORDERS",
    r"ab\z|x\z",
    r"a\hb",
    r"[\h]|x",
    r"[]a]+b?",
    r"\[",
    r"a++b?",
    r"a[^-.]b",
    r"(?:a|[.])+",
]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"[\p{Alpha}_]+", ["orders", "Orders", "a_b", "aXb", "x", "_", "aa"]),
        (r"\P{Alpha}", ["7", "_", "-", ".", "["]),
        (r"\p{Lower}+-\p{Digit}", ["orders-7"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"(?<first>.)\k<first>", ["aa"]),
        (r"\p{Lo}|x", ["x"]),
    ],
)
def test_javas_patterns(pattern: str, names: list[str]) -> None:
    assert [name for name in NAMES if java_pattern(pattern).fullmatch(name)] == names


JUDGE = """
import java.util.regex.Pattern;
public class Judge {
    public static void main(String[] arguments) {
        int patterns = Integer.parseInt(arguments[0]);
        for (int p = 1; p <= patterns; p++)
            for (int n = patterns + 1; n < arguments.length; n++)
                System.out.println(Pattern.matches(arguments[p], arguments[n]));
    }
}
"""


@pytest.mark.slow
@pytest.mark.needs("java")
def test_java_finds_the_same(tmp_path: Path) -> None:
    (tmp_path / "Judge.java").write_text(JUDGE)
    command = ["java", str(tmp_path / "Judge.java"), str(len(PATTERNS)), *PATTERNS, *NAMES]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    ours = [(pattern, name, bool(java_pattern(pattern).fullmatch(name))) for pattern in PATTERNS for name in NAMES]
    assert ours == [(*asked[:2], word == "true") for asked, word in zip(ours, said, strict=True)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "not a regular expression"),
        (r"\p{Alpha", "not a regular expression"),
        ("[a-z&&[^aeiou]]", "a class of characters within another"),
        ("[a[bc]]", "a class of characters within another"),
        (r"\p{IsGreek}", r"\\p{IsGreek} of Java's patterns is not known"),
        (r"\b{g}", "not known here"),
        (r"\Ga", "not a regular expression"),
        ("a(?i)b", "not a regular expression"),
        ("a{99999999999}", "not a regular expression"),
    ],
)
def test_what_python_has_not_is_named(pattern: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        java_pattern(pattern)
