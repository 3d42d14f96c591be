"""Checks the SQL of a job without Spark: whether it parses, and whether its views and columns exist.

    records    key value topic partition offset timestamp timestampType [headers]
    words      SELECT topic, word FROM (...records...)          ->  topic word
    sink       SELECT wrod FROM words                           ->  there is no column wrod in words; did you mean word?

Spark's own grammar finds what does not parse (`spark_grammar`). For names sqlglot parses it again, in Spark's dialect.
If the columns of something cannot be known (a generator without names, a pivot, a table of a catalog), they are not
checked; nor are those of a query that sqlglot does not parse: a job that Spark would run is not refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from odradek.spark.options import nearest
from odradek.spark.pipeline.spark_grammar import GRAMMAR, SqlFinding

_DIALECT = "spark"
# After GROUP BY sqlglot takes the function for the clause WINDOW; this one has the same columns.
_WINDOW = re.compile(r"\bwindow(\s*\()", re.IGNORECASE)
# A query that ends with one of these has lost what was to follow, although Spark takes it for a name there.
_CLAUSES = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.HAVING, TokenType.LIMIT, TokenType.ON, TokenType.NOT})
_NO_CLAUSE = "not valid SQL: something is missing before FROM, which Spark takes for a name"
_MADE_BY_FUNCTIONS = frozenset({"window", "session_window"})
# It would warn of syntax that it passes on without parsing.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

Columns = tuple[str, ...] | None
"""The columns of a view; None if they are not known."""


class Query:
    """A query over views.

    Args:
        sql: Its text.
        views: The views before it, and their columns.
        has_catalog: Whether there may be tables besides the views.

    Attributes:
        findings: What is wrong with it.
        columns: Its own columns.

    Raises:
        SparkStartError: There is no Java for Spark's parser.
    """

    def __init__(self, sql: str, views: Mapping[str, Columns], *, has_catalog: bool = False) -> None:
        self.findings: list[SqlFinding] = []
        self.columns: Columns = None
        self._views = {name.lower(): columns for name, columns in views.items()}
        self._names = list(views)
        query = self._parse(sql)
        if query is None:
            return
        for star in query.find_all(exp.Star):
            if (wrong := _misplaced(star)) is not None:
                self.findings.append(SqlFinding(wrong, _line(star)))
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
        statements: list[exp.Expr] | None = None
        tokens: list[Token] = []
        try:
            tokens = sqlglot.tokenize(text, dialect=_DIALECT)
            statements = [statement for statement in sqlglot.parse(text, dialect=_DIALECT) if statement is not None]
        except RecursionError:
            self.findings.append(SqlFinding("this is nested too deeply to be read", 1))
            return None
        except Exception:
            # Spark decides: it has syntax that sqlglot has not.
            statements = None
        if statements is not None and len(statements) != 1:
            self.findings.append(SqlFinding(f"expected one query, not {len(statements)}", 1))
        elif (wrong := (parsed := GRAMMAR.query(sql)).problem) is not None:
            self.findings.append(wrong._replace(reason=f"not valid SQL: {wrong.reason}"))
        elif tokens and tokens[-1].token_type in _CLAUSES:
            self.findings.append(
                SqlFinding(f"not valid SQL: something is missing after {tokens[-1].text}", tokens[-1].line)
            )
        if self.findings or statements is None:
            return None
        query = statements[0]
        if isinstance(query, exp.Query) and isinstance(query, exp.Expression):
            if parsed.reads_relations or next(_tables(query), None) is None:
                return query
            line = next((token.line for token in tokens if token.token_type is TokenType.FROM), 1)
            self.findings.append(SqlFinding(_NO_CLAUSE, line))
            return None
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


def _misplaced(star: exp.Star) -> str | None:
    """Return what is wrong with a `*`, or None."""
    part = star.parent if isinstance(star.parent, exp.Column) else star
    if isinstance(part.parent, exp.Alias):
        return f"a * cannot have a name; is FROM or a comma missing before {part.parent.alias}?"
    select = part.parent
    if isinstance(select, exp.Select) and part.arg_key == "expressions" and not _reads(select):
        return "a * needs a FROM"
    return None


def _reads(select: exp.Select) -> bool:
    return any(select.args.get(part) for part in ("from_", "from", "laterals", "joins"))


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
