"""Opens the topics of a source: a folder or a broker, as the options say."""

from __future__ import annotations

from odradek.errors import OptionError
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Topics


def open_topics(options: SourceOptions) -> Topics:
    """Open the folder, or connect to the broker, of a source."""
    if options.path is not None:
        from odradek.spark.folder import Folder

        return Folder(options.path, options.isolation, fail_on_data_loss=options.fail_on_data_loss)
    try:
        from odradek.kafka.settings import BrokerSettings
        from odradek.spark.broker_topics import BrokerTopics
    except ImportError as error:
        raise OptionError(f"kafka.bootstrap.servers: needs the extra odradek[kafka] ({error})") from error
    return BrokerTopics(BrokerSettings.parse(options.kafka), options.isolation)
