"""Opens the topics of a source: a folder or a broker, as the options say."""

from __future__ import annotations

from odradek.errors import OptionError
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Topics


def open_topics(options: SourceOptions) -> Topics:
    """Open the folder, or connect to the broker, of a source."""
    isolation, fails = options.isolation, options.fail_on_data_loss
    if options.path is not None:
        from odradek.places.path import PathPlace
        from odradek.spark.folder_split import FolderSplits

        folder = PathPlace(options.path, is_directory=True)
        return Topics(folder, isolation, FolderSplits(folder, isolation).splits, fail_on_data_loss=fails)
    try:
        from odradek.kafka.settings import BrokerSettings
        from odradek.places.address import BrokerAddress
        from odradek.places.broker import BrokerPlace
        from odradek.spark.broker_split import BrokerSplits
    except ImportError as error:
        raise OptionError(f"kafka.bootstrap.servers: needs the extra odradek[kafka] ({error})") from error
    settings = BrokerSettings.parse(options.kafka)
    address = BrokerAddress(f"kafka://{','.join(settings.bootstrap_servers)}", settings, None)
    broker = BrokerPlace(address, is_awaited=True)
    return Topics(broker, isolation, BrokerSplits(broker, isolation).splits, fail_on_data_loss=fails)
