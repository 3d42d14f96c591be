"""What an installed wheel has to do: a record of each codec is appended and read again, by nothing but the core."""

import tempfile

import odradek

with tempfile.TemporaryDirectory() as folder:
    with odradek.open(folder) as logs:
        for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            logs.create_topic(codec, config={"compression.type": codec})
            logs[codec, 0].append([odradek.Record(key=b"tech", value=b"for good" * 100)])
    with odradek.open(folder, mode="r") as logs:
        for topic in logs.topics():
            (record,) = logs[topic, 0].read()
            assert (record.key, record.value) == (b"tech", b"for good" * 100), topic
print("a record of each codec was appended and read")
