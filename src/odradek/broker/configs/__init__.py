"""The settings of topics, brokers and groups, as clients describe and alter them.

    config_keys                           a setting: name, type, default, valid values; Kafka's words for an invalid one
    topic_keys  broker_keys  group_keys   the settings there are
    resource_configs                      where each setting is set, and which value counts

The APIs that describe and alter settings use these.
"""
