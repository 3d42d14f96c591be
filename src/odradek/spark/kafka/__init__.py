"""A broker from Spark: records as its segments hold them, through kafka-python's connections and our own kernels."""
