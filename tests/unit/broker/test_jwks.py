"""Where the keys of tokens come from: files that change, and servers that are slow, large, lying or gone."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest

from odradek.broker.clock import Clock
from odradek.broker.jwks import JwksAddress, JwksFile, fetch_jwks, parse_jwks_url
from odradek.broker.oauth_settings import OAUTHBEARER_MODULE
from odradek.coordination.oauthbearer.keys import MOST_JWKS_BYTES
from odradek.errors import InvalidConfigError
from odradek.testing.tokens import TokenProvider
from peers.broker_thread import connect, start
from peers.certificates import make_certificate

PROVIDER = TokenProvider()
JWKS = json.dumps({"keys": [PROVIDER.public_key]}).encode()
TWO = json.dumps({"keys": [PROVIDER.public_key, TokenProvider(key_id="two").public_key]}).encode()


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def server(talk: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[SplitResult]:
    """Serves one client after the other; gives the address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                with suppress(OSError), client:
                    secured = client if context is None else context.wrap_socket(client, server_side=True)
                    with secured:
                        if secured.recv(1 << 16):
                            talk(secured)

    thread = threading.Thread(target=run)
    thread.start()
    scheme = "http" if context is None else "https"
    try:
        yield urlsplit(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/keys")
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        response(JWKS),
        response(JWKS, "200 OK", "Content-Type: application/json"),
        b"HTTP/1.0 200 OK\r\n\r\n" + JWKS,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(JWKS), JWKS),
    ],
)
def test_keys_are_fetched(answer: bytes) -> None:
    with server(lambda client: client.sendall(answer)) as url:
        assert fetch_jwks(url) == JWKS


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        ("HTTP status 404", response(JWKS, "404 Not Found")),
        ("HTTP status 302", response(JWKS, "302 Found", "Location: file:///etc/passwd")),
        ("HTTP status 301", response(JWKS, "301 Moved Permanently", "Location: http://127.0.0.1:1/")),
        ("HTTP status 304", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    ],
)
def test_another_status_is_an_error_and_no_redirection_is_followed(reason: str, answer: bytes) -> None:
    with server(lambda client: client.sendall(answer)) as url, pytest.raises(ValueError, match=reason):
        fetch_jwks(url)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"A: %d\r\n" % number for number in range(1000)),
        b"",
    ],
)
def test_of_a_gigabyte_only_a_little_is_received(head: bytes) -> None:
    sent = 0

    def talk(client: socket.socket) -> None:
        nonlocal sent
        client.sendall(head)
        for _ in range(1 << 10):
            sent += client.send(b"\0" * (1 << 20))

    with server(talk) as url, suppress(OSError, HTTPException, ValueError):
        assert len(fetch_jwks(url)) == MOST_JWKS_BYTES + 1
    # What the sockets hold comes on top.
    assert sent < 32 << 20


@pytest.mark.parametrize("part", [b"", b"H", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_a_server_that_hangs_is_left(part: bytes) -> None:
    ended = threading.Event()

    def talk(client: socket.socket) -> None:
        client.sendall(part)
        # Until the other side closes.
        client.recv(1)
        ended.set()

    with server(talk) as url:
        with pytest.raises(TimeoutError):
            fetch_jwks(url, within_s=0.05)
        assert ended.wait(10)


@pytest.mark.slow
def test_a_server_that_drips_is_left() -> None:
    def talk(client: socket.socket) -> None:
        client.settimeout(0.01)
        while True:
            client.sendall(b"H")
            with suppress(TimeoutError):
                client.recv(1)

    with server(talk) as url, pytest.raises(TimeoutError):
        fetch_jwks(url, within_s=0.1)


def test_the_server_is_the_one_of_its_certificate(tmp_path: Path) -> None:
    store, certificate = make_certificate("server").write(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    with server(lambda client: client.sendall(response(JWKS)), context) as url:
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch_jwks(url)
        assert fetch_jwks(url, ssl.create_default_context(cafile=str(certificate))) == JWKS


@pytest.mark.slow
def test_a_broker_trusts_the_certificates_that_its_login_module_names(tmp_path: Path) -> None:
    store, certificate = make_certificate("server").write(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    config: dict[str, Any] = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **PROVIDER.broker_settings("unused")}
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl"
    options = f'ssl.truststore.location="{certificate}" ssl.truststore.type="PEM"'
    message = b"n,,\x01auth=Bearer " + PROVIDER.token("alice").encode() + b"\x01\x01"
    with server(lambda client: client.sendall(response(JWKS)), context) as url:
        config[f"{prefix}.oauthbearer.jwks.endpoint.url"] = url.geturl()
        for trusted in (options, ""):
            config[f"{prefix}.jaas.config"] = f"{OAUTHBEARER_MODULE} required {trusted};"
            with start(tmp_path / "data", **config) as running, connect(running, "SASL_PLAINTEXT") as client:
                client.call(17, 1, {"mechanism": "OAUTHBEARER"})
                assert bool(client.call(36, 2, {"auth_bytes": message}).auth_bytes) is not bool(trusted)
    # OpenSSL takes a store without certificates for none, and trusts what the system trusts.
    (empty := tmp_path / "empty.pem").write_bytes(store.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0])
    for unusable in ("/nowhere", str(empty), str(tmp_path)):
        options = f'ssl.truststore.location="{unusable}"'
        config[f"{prefix}.jaas.config"] = f"{OAUTHBEARER_MODULE} required {options};"
        with pytest.raises(InvalidConfigError, match=f"{unusable} cannot be used"):
            start(tmp_path / "data", **config)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/jwks.json",
        "file:",
        "file://host/etc/jwks.json",
        "file:jwks.json",
        "ftp://host/keys",
        "data:application/json,{}",
        "http:///keys",
        "https://user:secret@host/keys",
        "https://host:99999/keys",
        "https://host:x/keys",
        "https://host:0/keys",
        # A request of HTTP could not ask for them.
        "https://host/key set",
        "https://host/keys?a=\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort|write them as %20"):
        parse_jwks_url(text)


def test_a_file_may_be_named_in_each_form() -> None:
    assert parse_jwks_url("file:///etc/j%20w.json") == Path("/etc/j w.json")
    assert parse_jwks_url("FILE:/etc/jwks.json") == Path("/etc/jwks.json")
    assert parse_jwks_url("file://localhost/jwks.json") == Path("/jwks.json")


@pytest.mark.parametrize("data", [b"{}", b"", b" " * (MOST_JWKS_BYTES + 1), None])
def test_a_file_that_is_no_key_set_is_refused(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "jwks.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ValueError, match=r".") as refused:
        JwksFile(path)
    assert str(refused.value)


def test_what_is_no_file_is_refused() -> None:
    for path in ("/dev/zero", "/"):
        with pytest.raises(ValueError, match="cannot be read"):
            JwksFile(Path(path))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwks.json"
    PROVIDER.write_jwks(path)
    source = JwksFile(path)
    assert len(source.keys()) == 1
    assert source.keys() is source.keys()
    PROVIDER.write_jwks(path, TokenProvider(key_id="two"))
    assert len(source.keys()) == 2
    assert caplog.text == ""
    # Half of a file is no reason to refuse everybody.
    path.write_bytes(TWO[:-5])
    assert len(source.keys()) == len(source.keys()) == 2
    assert caplog.text.count("stay as they were") == 1
    path.write_bytes(JWKS)
    assert len(source.keys()) == 1


def test_a_file_that_is_gone_is_logged_once_and_read_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jwks.json"
    source = JwksFile(PROVIDER.write_jwks(path))
    path.unlink()
    assert [len(source.keys()) for _ in range(3)] == [1, 1, 1]
    assert caplog.text.count("stay as they were") == 1
    PROVIDER.write_jwks(path, TokenProvider(key_id="two"))
    assert len(source.keys()) == 2


class _Provider:
    """Answers fetches as a test says, and notes when they come."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.answers: list[bytes | Exception] = []
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self, _url: SplitResult) -> bytes:
        self.gate.wait(10)
        self.count += 1
        answer = self.answers.pop(0) if self.answers else JWKS
        if isinstance(answer, Exception):
            raise answer
        return answer

    def source(self) -> JwksAddress:
        self.clock.bind(asyncio.get_running_loop())
        return JwksAddress(
            urlsplit("https://u.test/keys?secret=7"), self.clock, 3_600_000, 100_000, 1_000_000, self.fetch
        )

    async def until(self, count: int, source: JwksAddress) -> None:
        async with asyncio.timeout(10):
            while self.count < count or source._running is not None:
                await asyncio.sleep(0.001)


def test_keys_are_fetched_at_the_start_and_each_hour() -> None:
    async def main() -> None:
        provider = _Provider()
        provider.answers = [JWKS, TWO]
        source = provider.source()
        await source.ready()
        assert len(source.keys() or ()) == 1
        provider.clock.advance(3500)
        await asyncio.sleep(0)
        assert provider.count == 1
        provider.clock.advance(100)
        await provider.until(2, source)
        assert len(source.keys() or ()) == 2
        source.close()
        provider.clock.advance(3600)
        await asyncio.sleep(0)
        assert provider.count == 2

    asyncio.run(main())


def test_a_fetch_that_failed_is_tried_again_and_keys_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        provider = _Provider()
        broken: list[bytes | Exception] = [OSError("unreachable"), b"<html>the page</html>"]
        broken += [ValueError("HTTP status 500"), MemoryError()]
        provider.answers = [*broken, TWO, *broken]
        source = provider.source()
        await source.ready()
        assert source.keys() is None
        for number, delay_s in enumerate((100, 200, 400, 800), 2):
            provider.clock.advance(delay_s - 50)
            await asyncio.sleep(0)
            assert provider.count == number - 1
            provider.clock.advance(50)
            await provider.until(number, source)
        assert len(source.keys() or ()) == 2
        provider.clock.advance(3600)
        await provider.until(6, source)
        assert len(source.keys() or ()) == 2
        source.close()

    asyncio.run(main())
    assert "https://u.test/keys: the keys of tokens cannot be fetched (OSError: unreachable)" in caplog.text
    assert "secret" not in caplog.text
    assert "the page" not in caplog.text


def test_keys_are_fetched_again_when_there_was_no_thread_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        provider = _Provider()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            source = provider.source()
            await source.ready()
            assert await source.refresh()
        assert (source.keys(), provider.count) == (None, 0)
        provider.clock.advance(200)
        await provider.until(1, source)
        assert len(source.keys() or ()) == 1
        source.close()

    asyncio.run(main())
    assert "the keys of tokens cannot be fetched (can't start new thread)" in caplog.text


def test_an_unknown_key_has_them_fetched_once_in_ten_seconds() -> None:
    async def main() -> None:
        provider = _Provider()
        source = provider.source()
        await source.ready()
        provider.gate.clear()
        waiting = [asyncio.ensure_future(source.refresh()) for _ in range(100)]
        await asyncio.sleep(0)
        provider.gate.set()
        assert await asyncio.gather(*waiting) == [True] * 100
        assert provider.count == 2
        assert [await source.refresh() for _ in range(100)] == [False] * 100
        provider.clock.advance(10)
        assert await source.refresh()
        assert provider.count == 3
        source.close()
        provider.clock.advance(10)
        assert not await source.refresh()

    asyncio.run(main())


def test_a_source_that_is_closed_keeps_nobody_waiting() -> None:
    async def main() -> None:
        provider = _Provider()
        provider.gate.clear()
        source = provider.source()
        waiting = asyncio.ensure_future(source.ready())
        await asyncio.sleep(0)
        source.close()
        await waiting
        assert source.keys() is None
        provider.gate.set()

    asyncio.run(main())
