"""Which columns of a view are the source's own: the `partition` of `SELECT 0 AS partition` is not.

Sinks rely on a record's topic, partition and offset: they name files after them, and skip what a transaction has
committed. So these columns are traced in Spark's plan, where a column keeps the id that it got when it was made:

    Project [topic#1, 0 AS partition#9, offset#3]      topic and offset are the source's, partition is not
      DataSourceV2Relation odradek [topic#1, partition#2, offset#3]
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from odradek.spark.pipeline.sink_specs import ORIGIN_COLUMNS

_SOURCE = "odradek"


def origin_columns(frame: DataFrame) -> frozenset[str]:
    """Return those of `topic`, `partition` and `offset` that a view takes unchanged from the source.

    Args:
        frame: The view.
    """
    # The optimised plan has no aliases of views and queries, and no casts without effect. It is made here, because the
    # query's own ends where another view is kept in memory.
    query = frame._jdf.queryExecution()
    plan = query.sparkSession().sessionState().optimizer().execute(query.analyzed())
    return frozenset(
        attribute.name()
        for attribute in items(plan.output())
        if attribute.name() in ORIGIN_COLUMNS and _is_of_source(plan, attribute.exprId().id(), attribute.name())
    )


def items(sequence: Any) -> list[Any]:
    """Return what a sequence of Scala's holds."""
    return [sequence.apply(number) for number in range(sequence.size())]


def kind_of(node: Any) -> str:
    """Return the name of the class of a plan's node, such as `Project`."""
    return str(node.getClass().getSimpleName())


def _ids(plan: Any) -> list[int]:
    return [attribute.exprId().id() for attribute in items(plan.output())]


def _is_of_source(plan: Any, expression_id: int, name: str) -> bool:
    """Whether a column of a plan, by its id, is the source's column with this name."""
    kind, children = kind_of(plan), items(plan.children())
    if not children:
        return _is_column_of_leaf(plan, kind, expression_id, name)
    if kind == "Union":
        place = _ids(plan).index(expression_id)
        return all(_is_of_source(child, _ids(child)[place], name) for child in children)
    expressions = {"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(kind)
    for expression in items(getattr(plan, expressions)()) if expressions else ():
        if kind_of(expression) == "Alias" and expression.exprId().id() == expression_id:
            taken = expression.child()
            return kind_of(taken) == "AttributeReference" and _is_of_source(children[0], taken.exprId().id(), name)
    # A column that this node does not make comes from the one child that has it.
    holding = [child for child in children if expression_id in _ids(child)]
    return len(holding) == 1 and _is_of_source(holding[0], expression_id, name)


def _is_column_of_leaf(leaf: Any, kind: str, expression_id: int, name: str) -> bool:
    if kind == "LocalRelation" and leaf.data().isEmpty():
        # The optimiser found that there can be no row.
        return True
    relation = leaf.relation() if kind == "DataSourceV2ScanRelation" else leaf
    if kind_of(relation) != "DataSourceV2Relation" or relation.name() != _SOURCE:
        return False
    return any(
        attribute.name() == name and attribute.exprId().id() == expression_id for attribute in items(leaf.output())
    )
