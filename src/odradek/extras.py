"""Which extra of Odradek installs a package that is missing."""

from __future__ import annotations

EXTRAS = {
    "cryptography": "broker",
    "duckdb": "sql",
    "fastavro": "avro",
    "google": "protobuf",
    "jinja2": "ui",
    "joserfc": "broker",
    "kafka": "kafka",
    "kazoo": "zookeeper",
    "kio": "broker",
    "lz4": "codecs",
    "mcp": "mcp",
    "openlineage": "openlineage",
    "opentelemetry": "opentelemetry",
    "pandas": "spark",
    "prometheus_client": "broker",
    "py4j": "spark",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "re2": "broker",
    "redis": "redis",
    "rich": "terminal",
    "sqlglot": "spark",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""The extra that installs a package."""


def missing_package(error: ModuleNotFoundError) -> str:
    """Return which package is missing, and how it is installed."""
    package = (error.name or "").partition(".")[0]
    advice = f': pip install "odradek[{EXTRAS[package]}]"' if package in EXTRAS else ""
    return f"this needs the package {package}, which is not installed{advice}"
