"""A small S3 server: the requests that Arrow's S3 file system makes, with all objects in memory.

It does as S3's documentation says: a put, a copy and the end of an upload each show an object whole or not at all, and
lists show at once what there is. A test may look at each request, before it is done and afterwards.
"""

from __future__ import annotations

import re
import sys
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

ACCESS_KEY = "odradek"
SECRET_KEY = "metamorphosis/1915"
BUCKET = "cafe"


class S3Server:
    """Serves one bucket at a loopback port; a context manager.

    Attributes:
        bucket: The name of the bucket.
        objects: The objects, by their keys.
        on_request: Called with a request, such as `PUT orders/1.parquet`, and whether it is done: twice for each that
            changes something.
    """

    def __init__(self) -> None:
        self.bucket = BUCKET
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.on_request: Callable[[str, bool], None] = lambda request, is_done: None
        self._server = _QuietServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.s3 = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        """Returns the URI of a folder, without keys."""
        return (
            f"s3://{bucket}/{path}?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{self._server.server_port}"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, address: object) -> None:
        """Say nothing of connections that a test, or a killed client, has cut."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._answer()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        s3: S3Server = self.server.s3  # type: ignore[attr-defined]
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(address.path).removeprefix("/").partition("/")
        body = self._body()
        if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
            self._fail(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        elif bucket != s3.bucket:
            self._fail(404, "NoSuchBucket", "The specified bucket does not exist")
        elif self.command in ("HEAD", "GET"):
            self._read(s3, key, asked)
        else:
            request = f"{self.command} {key}{'?uploads' if 'uploads' in asked else ''}"
            s3.on_request(request, False)
            answer = _change(s3, self.command, key, asked, body, unquote(self.headers.get("x-amz-copy-source", "")))
            s3.on_request(request, True)
            if answer is None:
                self._fail(404, "NoSuchKey", "The specified key does not exist.")
            else:
                self._send(204 if self.command == "DELETE" else 200, answer.encode())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            data = _joined(self.rfile)
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # Amazon's own chunks, within those of HTTP; a checksum follows them.
        return _joined(BytesIO(data)) if "aws-chunked" in self.headers.get("Content-Encoding", "") else data

    def _read(self, s3: S3Server, key: str, asked: dict[str, str]) -> None:
        if "list-type" in asked:
            self._send(200, _list(s3, asked).encode())
        elif not key:
            self._send(200)
        elif key not in s3.objects:
            self._fail(404, "NoSuchKey", "The specified key does not exist.")
        else:
            data = s3.objects[key]
            if wanted := self.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                part = data[int(first) : int(last) + 1 if last else None]
                self._send(206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"})
            else:
                self._send(200, data)

    def _fail(self, status: int, code: str, message: str) -> None:
        self._send(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"e"', "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _joined(chunks: BufferedIOBase) -> bytes:
    """Returns what chunks hold, each after a line with its size in hexadecimal digits."""
    whole = b""
    while size_bytes := int(chunks.readline().partition(b";")[0], 16):
        whole += chunks.read(size_bytes)
        chunks.readline()
    return whole


def _change(s3: S3Server, command: str, key: str, asked: dict[str, str], body: bytes, source: str) -> str | None:
    """Changes objects; returns the answer, None if there is no such object."""
    upload = asked.get("uploadId", "")
    if "delete" in asked:
        for found in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            s3.objects.pop(unescape(found, {"&quot;": '"', "&apos;": "'"}), None)
        return "<DeleteResult></DeleteResult>"
    if command == "DELETE":
        s3.objects.pop(key, None) if not upload else s3.uploads.pop(upload, None)
        return ""
    if "uploads" in asked:
        upload = uuid.uuid4().hex
        s3.uploads[upload] = {}
        return f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
    if "partNumber" in asked:
        s3.uploads[upload][int(asked["partNumber"])] = body
        return ""
    if upload:
        s3.objects[key] = b"".join(part for _, part in sorted(s3.uploads.pop(upload).items()))
        return '<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'
    if source:
        data = s3.objects.get(source.removeprefix("/").partition("/")[2])
        if data is None:
            return None
        s3.objects[key] = data
        return '<CopyObjectResult><ETag>"e"</ETag></CopyObjectResult>'
    s3.objects[key] = body
    return ""


def _list(s3: S3Server, asked: dict[str, str]) -> str:
    prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
    after, most = asked.get("continuation-token", ""), int(asked.get("max-keys", "1000"))
    entries: dict[str, str] = {}
    for key, data in sorted(dict(s3.objects).items()):
        if key.startswith(prefix):
            name, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if found:
                folder = f"{prefix}{name}{delimiter}"
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                    "<LastModified>2026-11-01T00:00:00.000Z</LastModified></Contents>"
                )
    left = [name for name in sorted(entries) if name > after]
    token = f"<NextContinuationToken>{escape(left[most - 1])}</NextContinuationToken>" if len(left) > most else ""
    return (
        f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(left[:most])}</KeyCount><IsTruncated>{str(len(left) > most).lower()}</IsTruncated>{token}"
        f"{''.join(entries[name] for name in left[:most])}</ListBucketResult>"
    )
