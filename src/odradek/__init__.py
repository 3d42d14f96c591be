"""Odradek: Kafka's commit log as a Python library and a folder."""
