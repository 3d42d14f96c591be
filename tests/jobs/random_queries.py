"""Random queries over the view `records` that Spark takes, with one result each whatever the order of rows."""

from __future__ import annotations

from itertools import count
from random import Random

RECORDS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "int",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "headers",
}
"""The columns of `records`, and of which kind they are."""

Columns = dict[str, str]


class RandomQueries:
    """Makes queries, each over `records` or over views that were made before.

    Args:
        seed: The same seed gives the same queries.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._views: list[tuple[str, Columns]] = [("records", RECORDS)]
        self._names = count()

    def query(self, view: str, steps: int = 3) -> str:
        """Return a query, and take it for the view of that name from now on."""
        sql, columns = self._view()
        for _ in range(self._random.randint(1, steps)):
            sql, columns = self._step(sql, columns)
        self._views.append((view, columns))
        return sql

    def _view(self) -> tuple[str, Columns]:
        name, columns = self._random.choice([self._views[0], *self._views])
        return f"SELECT * FROM {name}", columns

    def _step(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        steps = [
            self._project,
            self._project,
            self._star,
            self._filter,
            self._filter,
            self._join,
            self._window,
            self._explode,
            self._aggregate,
            self._union,
            self._struct,
            self._common,
            self._top,
            self._rollup,
            self._subquery,
            self._set,
            self._hidden,
        ]
        return self._random.choice(steps)(sql, columns)

    def _new(self) -> str:
        """Return a name that no column has."""
        return f"c{next(self._names)}"

    def _some(self, columns: Columns) -> list[str]:
        return self._random.sample(sorted(columns), self._random.randint(1, min(3, len(columns))))

    def _one(self, columns: Columns) -> str:
        return self._random.choice(sorted(columns))

    def _expression(self, columns: Columns) -> tuple[str, str]:
        name = self._one(columns)
        choices = {
            "binary": [(f"length({name})", "int"), (f"CAST({name} AS STRING)", "string"), (f"hex({name})", "string")],
            "string": [(f"upper({name})", "string"), (f"length({name})", "int"), (f"shout({name})", "string")],
            "int": [
                (f"{name} % 3", "int"),
                (f"IF({name} > 1, {name}, NULL)", "int"),
                (f"CAST({name} AS STRING)", "string"),
            ],
            "timestamp": [(f"minute({name})", "int"), (f"date_trunc('HOUR', {name})", "timestamp")],
            "headers": [(f"size({name})", "int"), (f"transform({name}, h -> h.key)[0]", "string")],
        }[columns[name]]
        return self._random.choice([(name, columns[name]), *choices])

    def _condition(self, columns: Columns) -> str:
        name = self._one(columns)
        return self._random.choice(
            [
                f"{name} IS NOT NULL",
                f"{name} = {name}",
                {
                    "binary": f"length({name}) > 3",
                    "string": f"{name} LIKE '%a%'",
                    "int": f"{name} < 9",
                    "timestamp": f"minute({name}) < 30",
                    "headers": f"size({name}) > 0",
                }[columns[name]],
                # What the optimiser finds to be always so, today.
                f"(current_date() > DATE'2000-01-01' OR {name} IS NULL)",
                f"(1 = 2 OR {name} IS NOT NULL)",
            ]
        )

    def _project(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        kinds: Columns = {}
        parts = []
        for _ in range(self._random.randint(1, 4)):
            text, kind = self._expression(columns)
            name = text if text in columns and text not in kinds else self._new()
            kinds[name] = kind
            parts.append(f"{text} AS {name}")
        return f"SELECT {', '.join(parts)} FROM ({sql})", kinds

    def _star(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        left_out = self._some(columns)
        if len(left_out) == len(columns):
            name = self._new()
            return f"SELECT *, 1 AS {name} FROM ({sql})", {**columns, name: "int"}
        kept = {name: kind for name, kind in columns.items() if name not in left_out}
        return f"SELECT * EXCEPT ({', '.join(left_out)}) FROM ({sql})", kept

    def _filter(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        return f"SELECT * FROM ({sql}) WHERE {self._condition(columns)}", columns

    def _join(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        other, others = self._view()
        kind = self._random.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        same = [name for name in columns if others.get(name) == columns[name] and columns[name] != "headers"]
        other = f"({other} ORDER BY ALL LIMIT 7)"
        if "SEMI" in kind or "ANTI" in kind:
            on = f"a.{same[0]} <=> b.{same[0]}" if same else "length(b.bn) > 0"
            other = other if same else f"(SELECT CAST({self._one(others)} AS STRING) AS bn FROM {other})"
            return f"SELECT a.* FROM ({sql}) a {kind} {other} b ON {on}", columns
        left, right = self._some(columns), self._some(others)
        renamed = {self._new(): name for name in right}
        kinds = {
            **{name: columns[name] for name in left},
            **{new: others[name] for new, name in renamed.items()},
        }
        parts = [*(f"a.{name}" for name in left), *(f"b.{name} AS {new}" for new, name in renamed.items())]
        if not same:
            return f"SELECT {', '.join(parts)} FROM ({sql} ORDER BY ALL LIMIT 7) a CROSS JOIN {other} b", kinds
        on = " AND ".join(
            f"a.{name} = b.{name}" for name in self._random.sample(same, self._random.randint(1, min(2, len(same))))
        )
        return f"SELECT {', '.join(parts)} FROM ({sql} ORDER BY ALL LIMIT 20) a {kind} {other} b ON {on}", kinds

    def _window(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        function = self._random.choice(["rank()", "dense_rank()", f"max({self._one(columns)})", "count(*)"])
        order = "" if function == "count(*)" else f" ORDER BY {self._one(columns)}"
        over = f"{function} OVER (PARTITION BY {self._one(columns)}{order})"
        kind = columns[function[4:-1]] if function.startswith("max") else "int"
        name = self._new()
        return f"SELECT *, {over} AS {name} FROM ({sql})", {**columns, name: kind}

    def _explode(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        found = [name for name, kind in columns.items() if kind in ("binary", "headers")]
        if not found:
            return self._filter(sql, columns)
        name = self._random.choice(found)
        new = self._new()
        if columns[name] == "headers":
            sql = f"SELECT * EXCEPT (e), e.key AS {new} FROM ({sql}) LATERAL VIEW OUTER explode({name}) t AS e"
            return sql, {**columns, new: "string"}
        kept = {column: columns[column] for column in self._some(columns)}
        sql = f"SELECT {', '.join(kept)}, explode(split(CAST({name} AS STRING), ' ')) AS {new} FROM ({sql})"
        return sql, {**kept, new: "string"}

    def _aggregate(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        rows, most, distinct = self._new(), self._new(), self._new()
        if self._random.random() < 0.2:
            return f"SELECT count(*) AS {rows} FROM ({sql})", {rows: "int"}
        groups, name = self._some(columns), self._one(columns)
        kinds = {**{group: columns[group] for group in groups}, rows: "int", most: columns[name], distinct: "int"}
        functions = f"count(*) AS {rows}, max({name}) AS {most}, count(DISTINCT {self._one(columns)}) AS {distinct}"
        return f"SELECT {', '.join(groups)}, {functions} FROM ({sql}) GROUP BY {', '.join(groups)}", kinds

    def _rollup(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        groups, rows = self._some(columns), self._new()
        kinds = {**{group: columns[group] for group in groups}, rows: "int"}
        named = ", ".join(groups)
        how = self._random.choice(["ROLLUP", "CUBE"])
        return f"SELECT {named}, count(*) AS {rows} FROM ({sql}) GROUP BY {how}({named})", kinds

    def _union(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        how = self._random.choice(["UNION ALL", "UNION"])
        return f"{sql} {how} SELECT * FROM ({sql}) WHERE {self._condition(columns)}", columns

    def _set(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        how = self._random.choice(["INTERSECT", "EXCEPT", "EXCEPT ALL"])
        names = ", ".join(self._some(columns))
        kinds = {name: columns[name] for name in names.split(", ")}
        return f"SELECT {names} FROM ({sql}) {how} SELECT {names} FROM ({sql}) WHERE {self._condition(columns)}", kinds

    def _struct(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        names = self._some(columns)
        fields = ", ".join(f"s.{name}" for name in names)
        return f"SELECT {fields} FROM (SELECT struct(*) AS s FROM ({sql}))", {name: columns[name] for name in names}

    def _common(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        names, first, rows = self._some(columns), self._one(columns), self._new()
        parts = ", ".join(f"a.{name}" for name in names)
        inner = f"SELECT {first}, count(*) AS {rows} FROM x GROUP BY {first}"
        query = f"SELECT {parts}, b.{rows} FROM x a JOIN ({inner}) b ON a.{first} <=> b.{first}"
        return f"SELECT * FROM (WITH x AS ({sql}) {query})", {**{name: columns[name] for name in names}, rows: "int"}

    def _top(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        limit = self._random.choice(["LIMIT 5", "LIMIT 4 OFFSET 2", "LIMIT 0"])
        return f"SELECT * FROM (SELECT * FROM ({sql}) ORDER BY ALL {limit})", columns

    def _subquery(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        other, others = self._view()
        name, asked = f"CAST(q.{self._one(columns)} AS STRING)", self._one(others)
        condition = self._random.choice(
            [
                f"(SELECT count({asked}) FROM ({other})) > 3",
                f"{name} IN (SELECT CAST({asked} AS STRING) FROM ({other}))",
                f"EXISTS (SELECT 1 FROM ({other}) o WHERE CAST(o.{asked} AS STRING) = {name})",
            ]
        )
        return f"SELECT * FROM ({sql}) q WHERE {condition}", columns

    def _hidden(self, sql: str, columns: Columns) -> tuple[str, Columns]:
        """A name that is mentioned, and then not used."""
        names = self._some(columns)
        hidden = f"SELECT *, IF({self._one(columns)} IS NULL, 1, 2) AS {self._new()} FROM ({sql})"
        return f"SELECT {', '.join(names)} FROM ({hidden})", {name: columns[name] for name in names}
