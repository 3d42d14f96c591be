"""Checks the SQL of a job without Spark: whether it parses, and whether its views and columns exist.

    records    key value topic partition offset timestamp timestampType [headers]
    words      SELECT topic, word FROM (...records...)          ->  topic word
    sink       SELECT wrod FROM words                           ->  there is no column wrod in words; did you mean word?

sqlglot parses it, in Spark's dialect. If the columns of something cannot be known (a generator without names, a pivot,
a table of a catalog), they are not checked; nor is the syntax of a query with something that sqlglot knows only in part
(pipes, paths of variants): a job that Spark would run is not refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from odradek.spark.options import nearest

_DIALECT = "spark"
# After GROUP BY sqlglot takes the function for the clause WINDOW; this one has the same columns.
_WINDOW = re.compile(r"\bwindow(\s*\()", re.IGNORECASE)
# What Spark has and sqlglot has only in part: `|> SET`, `v:a.b`, `MAX RECURSION LEVEL 9`, `IDENTIFIER('f')(x)`, `MAP x
# USING`, `!>`.
_PARTLY_KNOWN = re.compile(r"\|>|(?<!:):(?!:)|\bMAX RECURSION\b|\bIDENTIFIER \(|\b(MAP|REDUCE) (?!\()|! [<>]")
_QUOTED = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER})
# A query that ends with one of these has lost what was to follow, although Spark takes it for a name there.
_CLAUSES = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.HAVING, TokenType.LIMIT, TokenType.ON})
# How many times a query is parsed again with a word of it as a name.
_MOST_TRIES = 30
_MADE_BY_FUNCTIONS = frozenset({"window", "session_window"})
# It would warn of syntax that it passes on without parsing.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

Columns = tuple[str, ...] | None
"""The columns of a view; None if they are not known."""


class SqlFinding(NamedTuple):
    """Something wrong in a query.

    Attributes:
        reason: What is wrong.
        line: The line in the query, from 1.
    """

    reason: str
    line: int


class Query:
    """A query over views.

    Args:
        sql: Its text.
        views: The views before it, and their columns.
        has_catalog: Whether there may be tables besides the views.

    Attributes:
        findings: What is wrong with it.
        columns: Its own columns.
    """

    def __init__(self, sql: str, views: Mapping[str, Columns], *, has_catalog: bool = False) -> None:
        self.findings: list[SqlFinding] = []
        self.columns: Columns = None
        self._views = {name.lower(): columns for name, columns in views.items()}
        self._names = list(views)
        query = self._parse(sql)
        if query is None:
            return
        tables = list(_tables(query))
        unknown = [table for table in tables if table.name.lower() not in self._views or table.db]
        for table in unknown:
            # `(TABLE words)` is taken for a table of that name.
            if not table.db and not has_catalog and table.name.upper() != "TABLE":
                told = f"there is no view {table.name}{nearest(table.name, self._names)}"
                self.findings.append(SqlFinding(told, _line(table)))
        if unknown or any(self._views[table.name.lower()] is None for table in tables):
            return
        self._resolve(query, has_pipe="|>" in sql)

    def _parse(self, sql: str) -> exp.Expression | None:
        text = _WINDOW.sub(r"session_window\1", sql)
        try:
            statements = [statement for statement in sqlglot.parse(text, dialect=_DIALECT) if statement is not None]
        except SqlglotError as error:
            details = (getattr(error, "errors", None) or [{}])[0]
            if not _may_be_sql(text):
                reason = _plain(details.get("description") or str(error).splitlines()[0])
                near = details.get("highlight")
                told = f"not valid SQL: {reason.rstrip('.')}{f', at {near!r}' if near else ''}"
                self.findings.append(SqlFinding(told, int(details.get("line") or 1)))
            return None
        except RecursionError:
            self.findings.append(SqlFinding("this is nested too deeply to be read", 1))
            return None
        except Exception:
            return None
        if len(statements) != 1:
            self.findings.append(SqlFinding(f"expected one query, not {len(statements)}", 1))
            return None
        query = statements[0]
        if isinstance(query, exp.Query) and isinstance(query, exp.Expression):
            return query
        is_table = isinstance(query, exp.Alias) and query.this.name.upper() == "TABLE"
        if not is_table and not isinstance(query, exp.Command | exp.Values):
            self.findings.append(SqlFinding(f"expected a query, not {query.key.upper()}", 1))
        return None

    def _resolve(self, query: exp.Expression, *, has_pipe: bool) -> None:
        if has_pipe and query.find(exp.Join) is not None:
            return
        # Spark and sqlglot name unnamed expressions differently.
        opaque = [part for part in query.find_all(exp.Select) if not _is_named(part)]
        has_pivot = query.find(exp.Pivot) is not None
        schema: dict[str, object] = {
            name: dict.fromkeys(columns, "string") for name, columns in self._views.items() if columns
        }
        try:
            qualified = qualify(
                query.copy(),
                schema=schema,
                dialect=_DIALECT,
                validate_qualify_columns=False,
                allow_partial_qualification=True,
                quote_identifiers=False,
                identify=False,
            )
            scopes = traverse_scope(qualified)
        except Exception:
            return
        # sqlglot makes other queries of pipes, and does not know the columns of a pivot.
        if not has_pipe and not has_pivot and not any(part is not query for part in opaque):
            sources = {name.lower() for scope in scopes for name in scope.sources}
            for scope in scopes:
                self.findings += self._missing(scope, sources)
        source = query if has_pivot else qualified
        selected = source.named_selects if isinstance(source, exp.Query) else []
        if selected and not opaque and "*" not in selected:
            self.columns = tuple(selected)

    def _missing(self, scope: Scope, sources: set[str]) -> Iterator[SqlFinding]:
        known = {name: self._columns_of(source) for name, source in scope.sources.items()}
        for name, (node, _) in scope.selected_sources.items():
            if isinstance(node, exp.Table) and node.alias_column_names:
                known[name] = {column.lower() for column in node.alias_column_names}
        fields = {part for held in known.values() for part in held or ()} | sources | _MADE_BY_FUNCTIONS
        is_closed = None not in known.values()
        told: set[str] = set()
        for column in scope.columns:
            name = column.name.lower()
            if not known or name in told | _MADE_BY_FUNCTIONS or isinstance(column.this, exp.Star):
                continue
            if column.table and column.table not in known:
                # It may be a column of an outer query, or a field of a struct.
                is_own = scope.parent is None and not column.find_ancestor(exp.Lambda)
                first = column.parts[0].name
                if is_own and is_closed and first.lower() not in fields | _aliases(scope.expression):
                    reason = f"there is no view or alias {first}{nearest(first, sources)}"
                    yield SqlFinding(reason, _line(column))
                    told.add(name)
                continue
            asked = [column.table] if column.table else list(known)
            columns = [known[source] for source in asked]
            if any(held is None or name in held for held in columns):
                continue
            if not column.table and name in _aliases(scope.expression):
                # GROUP BY, ORDER BY and HAVING may refer to the aliases of the SELECT.
                continue
            told.add(name)
            candidates = [part for held in columns for part in held or ()]
            where = ", ".join(asked) if all(part.lower() in self._views for part in asked) else "what is read"
            yield SqlFinding(f"there is no column {column.name} in {where}{nearest(name, candidates)}", _line(column))

    def _columns_of(self, source: exp.Expression | Scope) -> set[str] | None:
        if isinstance(source, exp.Table):
            columns = self._views.get(source.name.lower())
            return None if columns is None or source.args.get("laterals") else {name.lower() for name in columns}
        if isinstance(source, Scope) and isinstance(source.expression, exp.Query):
            names = {name.lower() for name in source.expression.named_selects}
            return None if "*" in names or not names else names
        return None


def _may_be_sql(text: str) -> bool:
    """Whether Spark may take what sqlglot does not parse: syntax of Spark, or a word of the language used as a name."""
    left = [text]
    for _ in range(_MOST_TRIES):
        if not left:
            return False
        text = left.pop()
        try:
            tokens = sqlglot.tokenize(text, dialect=_DIALECT)
            words = " ".join(token.text.upper() for token in tokens if token.token_type not in _QUOTED)
            if _PARTLY_KNOWN.search(words):
                return True
            sqlglot.parse(text, dialect=_DIALECT)
        except ParseError as error:
            for place in error.errors[:1]:
                left += _with_a_name(text, tokens, (place["line"], place["col"]))
        except (SqlglotError, RecursionError):
            return False
        else:
            return True
    return False


def _with_a_name(text: str, tokens: Sequence[Token], place: tuple[int, int]) -> Iterator[str]:
    """Give a query with the word at or before the place of an error as a quoted name."""
    at = next((number for number, token in enumerate(tokens) if (token.line, token.col) == place), 0)
    for number in range(max(0, at - 1), at + 1):
        token = tokens[number]
        is_cut = number == len(tokens) - 1 and token.token_type in _CLAUSES
        if token.text.isidentifier() and token.token_type not in _QUOTED | {TokenType.VAR} and not is_cut:
            yield f"{text[: token.start]}`{token.text}`{text[token.end + 1 :]}"


def _plain(text: str) -> str:
    """Return sqlglot's message without the names of its classes."""
    text = text.partition(" but got <")[0]
    match = re.search(r"missing for <class '[\w.]*?(\w+)'>", text)
    return f"something is missing after {match[1].upper()}" if match else text


def _tables(query: exp.Expression) -> Iterator[exp.Table]:
    """Yield the tables that a query reads, except those that it defines itself and those that are functions."""
    defined = {part.alias.lower() for part in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        # A hint such as `/*+ BROADCAST(b) */` names aliases.
        if table.find_ancestor(exp.Hint) is not None:
            continue
        if isinstance(table.this, exp.Identifier) and (table.db or table.name.lower() not in defined):
            yield table


def _is_named(select: exp.Expression) -> bool:
    """Whether every column of a SELECT has an explicit name."""
    named = (exp.Alias, exp.Column, exp.Literal)
    return all(isinstance(_outermost(part), named) or part.is_star for part in select.expressions)


def _outermost(part: exp.Expr) -> exp.Expr:
    """Return of `a.b.c` its first part: only a column's field has a name of its own, `headers[0].key` has not."""
    while isinstance(part, exp.Dot):
        part = part.this
    return part


def _aliases(select: exp.Expr) -> set[str]:
    """Return the aliases of a SELECT that are not the column of the same name."""
    return {
        part.alias.lower()
        for part in select.expressions
        if isinstance(part, exp.Alias)
        and not (isinstance(part.this, exp.Column) and part.this.name.lower() == part.alias.lower())
    }


def _line(part: exp.Expression) -> int:
    """Return the line of a name in its query, from 1."""
    named = part.this if isinstance(part.this, exp.Expression) else part
    line = named.meta.get("line") or part.meta.get("line")
    return int(line) if line else 1
