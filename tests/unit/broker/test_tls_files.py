"""Certificates that are replaced while the broker runs: new connections get them, or keep the one before."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker import tls_files
from odradek.broker.running import BrokerThread
from odradek.errors import InvalidConfigError, LogError, ProtocolError
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.certificates import Certificate, make_certificate
from peers.descriptors import descriptors, stay_open
from peers.requests import ask

LOOK_S = 5


@pytest.fixture(scope="module")
def first() -> Certificate:
    return make_certificate("server")


@pytest.fixture(scope="module")
def second() -> Certificate:
    return make_certificate("server")


def pem(certificate: Certificate, password: str | None = None) -> str:
    return certificate.key_pem(password) + certificate.certificate_pem


def serve(folder: Path, **config: Any) -> BrokerThread:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "server.pem")}
    given |= {name.replace("_", "."): text for name, text in config.items()}
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    return start(folder / "data", **listeners, **given)


@pytest.fixture
def running(tmp_path: Path, first: Certificate) -> Iterator[BrokerThread]:
    (tmp_path / "server.pem").write_text(pem(first))
    with serve(tmp_path) as running:
        yield running


def connected(running: BrokerThread, client: Certificate | None = None, folder: Path | None = None) -> WireClient:
    endpoint = running.endpoint("SSL")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None and folder is not None:
        context.load_cert_chain(client.write(folder)[0])
    made = WireClient(endpoint.host, endpoint.port)
    made.socket = context.wrap_socket(made.socket)
    return made


def shown(client: WireClient) -> bytes | None:
    assert isinstance(client.socket, ssl.SSLSocket)
    return client.socket.getpeercert(binary_form=True)


def serves(running: BrokerThread, certificate: Certificate) -> bool:
    with connected(running) as client:
        assert client.call(18, 0, {}).api_keys
        return shown(client) == certificate.certificate.public_bytes(Encoding.DER)


def look(running: BrokerThread, times: int = 2) -> None:
    """Lets the broker look at its files: at the second look a change has settled."""
    for _ in range(times):
        advance(running, LOOK_S)
        eventually(lambda: running.call(lambda: not running.server._listeners.tls._looks))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_new_connections_get_the_new_certificate_and_old_ones_stay(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(running) as old:
        look(running)
        assert serves(running, first)
        (tmp_path / "server.pem").write_text(pem(second))
        look(running, 1)
        assert serves(running, first)
        look(running, 1)
        assert serves(running, second)
        assert old.call(18, 0, {}).api_keys
        assert shown(old) == first.certificate.public_bytes(Encoding.DER)
    # As Kubernetes does it: a link to a file elsewhere is replaced.
    (tmp_path / "new.pem").write_text(pem(first))
    (tmp_path / "link").symlink_to(tmp_path / "new.pem")
    (tmp_path / "link").rename(tmp_path / "server.pem")
    look(running)
    assert serves(running, first)
    assert errors(caplog) == []


def test_a_file_that_is_being_written_is_left_alone(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    text, path = pem(second), tmp_path / "server.pem"
    for part in range(1, 9):
        path.write_text(text[: len(text) * part // 8])
        look(running, 1)
        assert serves(running, first)
    look(running, 1)
    assert serves(running, second)
    assert errors(caplog) == []


def broken(kind: str, certificate: Certificate) -> tuple[str, str]:
    """Returns what a file has that cannot be used, and what is said of it."""
    match kind:
        case "cut short":
            return pem(certificate)[:-300], "cannot"
        case "empty":
            return "", "cannot"
        case "another password":
            return pem(certificate, "another"), "cannot"
        case "the key of another":
            return make_certificate("server").key_pem() + certificate.certificate_pem, "cannot"
        case "expired":
            return pem(make_certificate("server", days=-1)), "expired at"
        case "not valid yet":
            return pem(make_certificate("server", since=1)), "is valid from"
        case "another name":
            return pem(make_certificate("other")), "is of CN=other, not of CN=server; set ssl.allow.dn.changes"
        case _:
            return pem(make_certificate("server", host="example.org")), "not for localhost; set ssl.allow.san.changes"


KINDS = [
    "cut short",
    "empty",
    "another password",
    "the key of another",
    "expired",
    "not valid yet",
    "another name",
    "another host",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_used_is_told_once_and_the_old_certificate_stays(
    tmp_path: Path,
    running: BrokerThread,
    first: Certificate,
    second: Certificate,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    path = tmp_path / "server.pem"
    text, reason = broken(kind, second)
    path.write_text(text)
    look(running, 4)
    assert serves(running, first)
    [told] = errors(caplog)
    assert told.startswith(f"SSL: {path} changed, and the certificate before it stays in use: ")
    assert reason in told
    assert "PRIVATE" not in told
    path.write_text(pem(second))
    look(running)
    assert serves(running, second)
    assert len(errors(caplog)) == 1


def test_a_file_that_has_gone_is_told_once_and_may_come_back(
    tmp_path: Path, running: BrokerThread, first: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.pem"
    path.rename(tmp_path / "away")
    look(running, 3)
    assert serves(running, first)
    assert len(errors(caplog)) == 1
    (tmp_path / "away").rename(path)
    look(running, 3)
    assert serves(running, first)
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("kind", ["a FIFO", "a directory", "17 MiB"])
def test_what_is_no_file_keeps_no_thread_waiting(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, caplog: Any, kind: str
) -> None:
    path = tmp_path / "server.pem"
    path.unlink()
    match kind:
        case "a FIFO":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case _:
            path.touch()
            os.truncate(path, 17 << 20)
    look(running, 3)
    assert serves(running, first)
    [told] = errors(caplog)
    assert kind in told or "more than such a file can have" in told
    (tmp_path / "new.pem").write_text(pem(second))
    path.rename(tmp_path / "away")
    (tmp_path / "new.pem").rename(path)
    look(running)
    assert serves(running, second)


def test_what_failed_without_a_fault_of_the_file_is_tried_again(
    tmp_path: Path,
    running: BrokerThread,
    first: Certificate,
    second: Certificate,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(error: BaseException) -> Callable[..., NoReturn]:
        def fail(*args: Any) -> NoReturn:
            raise error

        return fail

    with monkeypatch.context() as patch:
        for error in (OSError(errno.EMFILE, "Too many open files"), MemoryError()):
            patch.setattr("odradek.broker.tls_files._load_again", failing(error))
            (tmp_path / "server.pem").write_text(pem(second))
            look(running, 3)
    assert serves(running, first)
    advance(running, 60)
    look(running, 1)
    assert serves(running, second)
    assert len(errors(caplog)) == 2


@pytest.mark.parametrize("is_running", [False, True])
def test_a_trust_store_without_certificates_does_not_trust_what_the_system_trusts(
    tmp_path: Path, first: Certificate, second: Certificate, caplog: Any, is_running: bool
) -> None:
    (tmp_path / "server.pem").write_text(pem(first))
    trusted = tmp_path / "clients.pem"
    config = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(trusted), "ssl_client_auth": "required"}
    if not is_running:
        trusted.write_text(second.key_pem())
        with pytest.raises(InvalidConfigError, match=r"clients.pem has no certificates"):
            serve(tmp_path, **config)
        return
    trusted.write_text(second.certificate_pem)
    with serve(tmp_path, **config) as running:
        trusted.write_text(second.key_pem())
        look(running)
        [told] = errors(caplog)
        assert "clients.pem has no certificates" in told
        with connected(running, second, tmp_path) as client:
            assert client.call(18, 0, {}).api_keys


def test_a_path_that_cannot_be_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.keystore\.location"):
        serve(tmp_path, ssl_keystore_location="server\0.pem")


def test_other_names_may_be_allowed(tmp_path: Path, first: Certificate) -> None:
    (tmp_path / "server.pem").write_text(pem(first))
    other = make_certificate("other", host="example.org")
    allowed = {"ssl_allow_dn_changes": "true", "listener_name_ssl_ssl_allow_san_changes": "true"}
    with serve(tmp_path, **allowed) as running:
        (tmp_path / "server.pem").write_text(pem(other))
        look(running)
        assert serves(running, other)


def test_a_name_in_other_letters_is_the_same_name(tmp_path: Path, running: BrokerThread) -> None:
    """As in Kafka: `SslFactory` compares names without their case."""
    other = make_certificate("Server")
    (tmp_path / "server.pem").write_text(pem(other))
    look(running)
    assert serves(running, other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_key_stores_of_java_are_replaced_too(
    tmp_path: Path, first: Certificate, second: Certificate, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "server.p12"
    store.write_bytes(first.pkcs12("st0re"))
    config = {"ssl_keystore_type": kind, "ssl_keystore_location": str(store), "ssl_keystore_password": "st0re"}
    given = {name.replace("_", "."): text for name, text in config.items()}
    with start(tmp_path / "data", listeners="SSL://127.0.0.1:0", **given) as running:
        store.write_bytes(second.pkcs12("another"))
        look(running)
        assert serves(running, first)
        assert len(errors(caplog)) == 1
        store.write_bytes(second.pkcs12("st0re"))
        look(running)
        assert serves(running, second)


@pytest.mark.slow
def test_whom_a_listener_trusts_is_replaced_too(tmp_path: Path, first: Certificate) -> None:
    (tmp_path / "server.pem").write_text(pem(first))
    alice, bob = make_certificate("alice"), make_certificate("bob")
    trusted = tmp_path / "clients.crt"
    trusted.write_text(alice.certificate_pem)
    config = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(trusted), "ssl_client_auth": "required"}

    def admits(client: Certificate) -> bool:
        try:
            with connected(broker, client, tmp_path) as one:
                return bool(one.call(18, 0, {}).api_keys)
        except (OSError, ProtocolError):
            return False

    with serve(tmp_path, **config) as broker:
        assert (admits(alice), admits(bob)) == (True, False)
        with connected(broker, alice, tmp_path) as old:
            trusted.write_text(bob.certificate_pem)
            look(broker)
            assert (admits(alice), admits(bob)) == (False, True)
            assert old.call(18, 0, {}).api_keys


@pytest.mark.slow
def test_a_hundred_replacements_leave_nothing_open(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate
) -> None:
    both = [first, second]

    def replace(number: int) -> None:
        (tmp_path / "server.pem").write_text(pem(both[number % 2]) if number % 3 else "broken")
        look(running)
        served = number if number % 3 else number - 1
        assert serves(running, both[served % 2])

    with connected(running) as old:
        replace(1)
        before = descriptors()
        for number in range(1, 101):
            replace(number)
            assert old.call(18, 0, {}).api_keys
        assert not stay_open(before)


# -- settings in the metadata

PREFIX = "listener.name.ssl.ssl."


def alter(
    running: BrokerThread, settings: Mapping[str, str | None], broker: str = "1", *, validate_only: bool = False
) -> Any:
    """Alters settings of key stores; None removes one."""
    configs = [
        {"name": name, "config_operation": int(value is None), "value": value} for name, value in settings.items()
    ]
    asked = {"resource_type": 4, "resource_name": broker, "configs": configs}
    with connect(running) as client:
        [found] = ask(client, "IncrementalAlterConfigs", 1, resources=[asked], validate_only=validate_only).responses
        return found


def settle(running: BrokerThread) -> None:
    eventually(lambda: running.call(lambda: not running.server._listeners.tls._looks))


@pytest.mark.slow
def test_a_key_store_of_other_settings_is_used_at_once_and_after_a_restart(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "second.p12"
    store.write_bytes(second.pkcs12("s3cond"))
    location, password = f"{PREFIX}keystore.location", f"{PREFIX}keystore.password"
    given = {location: str(store), password: "s3cond", f"{PREFIX}keystore.type": "PKCS12"}
    with connected(running) as old:
        assert not alter(running, given, validate_only=True).error_code
        settle(running)
        assert serves(running, first)
        assert not alter(running, given).error_code
        settle(running)
        assert serves(running, second)
        assert shown(old) == first.certificate.public_bytes(Encoding.DER)
    # Its file may be replaced as that of the start.
    store.write_bytes(first.pkcs12("s3cond"))
    look(running)
    assert serves(running, first)
    store.write_bytes(second.pkcs12("s3cond"))
    running.stop()
    with serve(tmp_path) as again:
        assert serves(again, second)
        assert not alter(again, dict.fromkeys(given)).error_code
        settle(again)
        assert serves(again, first)
    assert errors(caplog) == []
    assert "s3cond" not in caplog.text


@pytest.mark.parametrize("kind", [*KINDS, "missing", "a reference", "a type"])
def test_a_key_store_that_cannot_be_used_is_refused_and_nothing_changes(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, kind: str
) -> None:
    path, reason = tmp_path / "other.pem", "cannot be read: No such file"
    value = str(path)
    if kind == "a reference":
        value, reason = "${file:/etc/a:b}", "refers to a config provider"
    elif kind == "a type":
        value, reason = "BKS", "needs one of JKS, PEM, PKCS12"
    elif kind != "missing":
        text, reason = broken(kind, second)
        path.write_text(text)
    setting = f"{PREFIX}keystore.{'type' if kind == 'a type' else 'location'}"
    refused = alter(running, {setting: value})
    assert refused.error_code.name == "invalid_request"
    assert reason in refused.error_message
    settle(running)
    assert serves(running, first)
    assert running.broker.logs.metadata_image.broker_config(1) == {"min.insync.replicas": "1"}


def test_whom_a_listener_trusts_may_be_set_and_only_for_one_listener(tmp_path: Path, first: Certificate) -> None:
    (tmp_path / "server.pem").write_text(pem(first))
    alice, bob = make_certificate("alice"), make_certificate("bob")
    config = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": alice.certificate_pem}
    with serve(tmp_path, ssl_client_auth="required", **config) as running:
        certificates = bob.certificate_pem
        refused = alter(running, {"ssl.truststore.certificates": certificates})
        assert "for one listener only: listener.name.NAME.ssl.truststore.cert" in refused.error_message
        assert alter(running, {f"{PREFIX}truststore.certificates": certificates}, "").error_code
        assert not alter(running, {f"{PREFIX}truststore.certificates": certificates}).error_code
        settle(running)
        with connected(running, bob, tmp_path) as client:
            assert client.call(18, 0, {}).api_keys
        with pytest.raises((OSError, ProtocolError)), connected(running, alice, tmp_path) as client:
            client.call(18, 0, {})


@pytest.mark.slow
def test_of_two_changes_at_once_the_second_is_tried_after_the_first(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each can be used without the other; with both, the broker would not start again."""
    store = tmp_path / "second.p12"
    store.write_bytes(second.pkcs12("s3cond"))
    refused: list[Any] = []
    check = running.server._listeners.tls.check

    def check_slowly(texts: Mapping[str, str]) -> None:
        if f"{PREFIX}keystore.location" in texts and not other.is_alive() and not refused:
            other.start()
            # Unless it waits for this change.
            other.join(0.2)
        check(texts)

    def set_other() -> None:
        refused.append(alter(running, {f"{PREFIX}keystore.password": "wrong"}))

    other = threading.Thread(target=set_other)
    monkeypatch.setattr(running.broker.config, "check_stores", check_slowly)
    given = {f"{PREFIX}keystore.location": str(store), f"{PREFIX}keystore.password": "s3cond"}
    assert not alter(running, given).error_code
    other.join()
    assert refused[0].error_code.name == "invalid_request"
    settle(running)
    assert serves(running, second)


@pytest.mark.slow
def test_a_key_that_makes_each_handshake_long_is_refused(
    running: BrokerThread, first: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshakes are the loop's, and clients may set keys."""
    monkeypatch.setattr("odradek.broker.tls_files._MOST_RSA_BITS", 2047)
    large = make_certificate("server", key=rsa.generate_private_key(65537, 2048))
    parts = {f"{PREFIX}keystore.key": large.key_pem(), f"{PREFIX}keystore.certificate.chain": large.certificate_pem}
    refused = alter(running, parts)
    assert "its key has 2048 bits, more than 2047" in refused.error_message
    assert serves(running, first)


@pytest.mark.slow
def test_the_start_does_not_need_the_key_store_in_the_metadata_and_it_can_be_removed(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """As at Apache Kafka: otherwise nobody could remove the setting any more."""
    store = tmp_path / "second.pem"
    store.write_text(pem(second))
    assert not alter(running, {f"{PREFIX}keystore.location": str(store)}).error_code
    running.stop()
    store.rename(tmp_path / "away")
    with serve(tmp_path) as again:
        assert serves(again, first)
        look(again, 1)
        assert f"{PREFIX}keystore.location: {store} cannot be read" in errors(caplog)[0]
        (tmp_path / "away").rename(store)
        look(again)
        assert serves(again, second)
        store.unlink()
        assert not alter(again, {f"{PREFIX}keystore.location": None}).error_code
        settle(again)
        assert serves(again, first)
        # What is in the metadata may trust fewer clients than what the start gives.
        store.write_text(pem(second))
        assert not alter(again, {f"{PREFIX}truststore.location": str(store)}).error_code
    store.unlink()
    with pytest.raises(LogError, match=f"SSL: the metadata have settings that .*{PREFIX}truststore.location: {store}"):
        serve(tmp_path)


def test_settings_that_change_while_others_are_read_are_used_at_once_too(
    tmp_path: Path, running: BrokerThread, first: Certificate, second: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, certificate in enumerate((second, first)):
        (tmp_path / f"{number}.pem").write_text(pem(certificate))
    location, calls = f"{PREFIX}keystore.location", itertools.count()
    load = tls_files._load_again

    def load_slowly(*args: Any) -> Any:
        # The first call checks, the second one uses the settings.
        if next(calls) == 1:
            assert not alter(running, {location: str(tmp_path / "1.pem")}).error_code
        return load(*args)

    monkeypatch.setattr(tls_files, "_load_again", load_slowly)
    assert not alter(running, {location: str(tmp_path / "0.pem")}).error_code
    settle(running)
    assert serves(running, first)
