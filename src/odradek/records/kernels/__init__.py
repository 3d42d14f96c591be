"""The compiled loops over Kafka's bytes, written in Cython's pure-Python mode.

`batches` walks batch headers, `columns` decodes records into Arrow's memory layout, `objects` decodes them into
`Record` objects; `rows` and `encode` write batches, `check` looks at those that are to be appended. They share the
inline functions of `wire.pxd`. None of them believes a length before it has checked it against the bytes that are
left, and the loops run without the GIL.
"""
