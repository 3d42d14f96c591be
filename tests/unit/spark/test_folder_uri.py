"""Addresses of folders that are not on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import OptionError, SinkError
from odradek.spark.pipeline.folder_uri import FolderUri, folder_or_uri, overlap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/orders", "s3://bucket/orders"),
        ("S3://bucket/orders/", "s3://bucket/orders"),
        ("s3://AKIA:tech%2Fgood@bucket/a%20b/c?region=x&endpoint_override=localhost:9000", "s3://bucket/a b/c"),
        ("gs://bucket/orders", "gs://bucket/orders"),
        ("hdfs://me@namenode:8020/orders", "hdfs://me@namenode:8020/orders"),
        ("hdfs:///orders", "hdfs:///orders"),
        ("abfs://files:key@account.dfs.core.windows.net/orders", "abfs://files@account.dfs.core.windows.net/orders"),
    ],
)
def test_shows_all_but_keys_and_query(text: str, shown: str) -> None:
    uri = folder_or_uri(text, Path("/jobs"))
    assert isinstance(uri, FolderUri)
    assert str(uri) == shown
    assert uri.text == text
    assert "AKIA" not in repr(uri)
    assert "key" not in repr(uri)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3a://bucket/orders", "a URI that begins with s3://, gs://, .*; not s3a://, that is s3://"),
        ("ftp://host/orders", "a URI that begins with .*hdfs://, viewfs://; not ftp://$"),
        ("s3://bucket", "a folder, not all of a bucket"),
        ("s3:///orders", "s3:// and the name of a bucket"),
        ("s3://bucket/a b", "in a URI write %20 for ' '"),
        ("s3://bucket/a/../b", "without . and .. among its folders"),
        ("s3://bucket/a//b", "without . and .. among its folders"),
        ("s3://k:tech/good@bucket/a", "for #, %2F for / "),
        ("s3://k:tech@bucket:good/a", "its host or its port is none"),
        ("s3://[k:tech@bucket/a", "its host or its port is none"),
        ("file://host/a", "file:/// and the folder's path"),
        ("file:///a%00", "a character that no file's name has"),
        ("s3://bucket/a%00", "a path without %00"),
        ("s3://bucket/a%FF", "a path whose % stand for UTF-8"),
        ("s3://bucket/a%2", "in a URI write %25 for '%'"),
        ("s3://k:tech%@bucket/a", "in a URI write %25 for '%'"),
        ("s3:/bucket/a", r"s3:// with two slashes, or for a folder of this machine \./s3:"),
        ("S3:bucket/a", "S3:// with two slashes"),
        ("hdfs:/a", "hdfs:// with two slashes"),
        ("file:/data/a", "file:// with two slashes"),
        ("file:a", "file:// with two slashes"),
    ],
)
def test_refuses_others_without_asking_anyone(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=told) as caught:
        folder_or_uri(text, Path("/jobs"))
    assert "tech" not in str(caught.value)


def test_a_file_uri_is_a_folder_of_this_machine() -> None:
    assert folder_or_uri("file:///data/a%20b", Path("/jobs")) == Path("/data/a b")
    assert folder_or_uri("a b", Path("/jobs")) == Path("/jobs/a b")
    assert folder_or_uri("./s3:a", Path("/jobs")) == Path("/jobs/s3:a")
    assert folder_or_uri("12:30", Path("/jobs")) == Path("/jobs/12:30")


@pytest.mark.parametrize(
    ("path", "other", "expected"),
    [
        ("s3://bucket/a", "s3://k:s@bucket/a/b?region=x", True),
        ("s3://bucket/a", "s3://bucket/ab", False),
        ("s3://bucket/a", "s3://bucket/a?endpoint_override=localhost:9000", False),
        ("s3://bucket/a", "/bucket/a", False),
        ("hdfs://one/a", "hdfs://two/a", False),
        ("gs://bucket/a", "gcs://bucket/a", True),
        ("abfs://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a", True),
        ("/data/a", "file:///data", True),
        ("/data/a", "/data/b", False),
    ],
)
def test_folders_that_overlap(path: str, other: str, expected: bool) -> None:
    folders = [folder_or_uri(text, Path("/jobs")) for text in (path, other)]
    assert overlap(*folders) is expected
    assert overlap(*reversed(folders)) is expected


def test_only_passwords_are_left_out_of_what_a_file_system_says() -> None:
    uri = FolderUri.parse("abfs://c:tech@account.dfs.core.windows.net/a?colour=tech")
    with pytest.raises(SinkError, match=r"Unexpected query parameter .* 'colour'") as caught:
        uri.open()
    assert "tech" not in str(caught.value)
