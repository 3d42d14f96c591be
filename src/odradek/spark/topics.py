"""Where topics are: a folder or a broker, as the options say."""

from __future__ import annotations

from odradek.spark.folder import Folder
from odradek.spark.options import SourceOptionError, SourceOptions
from odradek.spark.ranges import Topics


def open_topics(options: SourceOptions) -> Topics:
    """Open the folder, or connect to the broker, of a source."""
    if options.path is None:
        raise SourceOptionError("kafka.bootstrap.servers: reading from a broker is not possible yet")
    return Folder(options.path, options.isolation)
