"""The settings of topics, brokers and groups, as clients describe and alter them.

config_keys     a setting: name, type, default, valid values; Kafka's words for what is not valid
topic_keys  broker_keys  group_keys     the settings there are
resource_configs   what is set where, and what counts
"""
