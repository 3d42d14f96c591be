from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from urllib.parse import urlencode

import pytest

from odradek.broker.running import BrokerThread
from odradek.errors import OptionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import Cluster, TlsStores
from odradek.kafka.settings import BrokerSettings
from odradek.key_stores import read_key_store
from odradek.offsets.store import open_store
from peers.certificates import make_certificate

STORES = Path(__file__).parents[1] / "vectors" / "key-stores"
STORE_PASSWORD, KEY_PASSWORD = "st0re-pass", "k3y-pass"


def context_of(options: dict[str, str]) -> ssl.SSLContext:
    """The context of a connection, as a Spark task makes it from settings that were sent to it."""
    settings = BrokerSettings.parse({"bootstrap.servers": "localhost:1", "security.protocol": "SSL", **options})
    stores = pickle.loads(pickle.dumps(settings)).connection["ssl_context"]
    assert isinstance(stores, TlsStores)
    return stores.context()


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    wanting = client.wrap_bio(theirs, ours, server_hostname="localhost")
    accepting = server.wrap_bio(ours, theirs, server_side=True)
    for side in (wanting, accepting, wanting, accepting):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert wanting.version() == accepting.version() == "TLSv1.3"


@pytest.mark.parametrize("trust", ["trust.jks", "trust.p12"])
def test_stores_of_keytool_are_read(trust: str, tmp_path: Path) -> None:
    """By a client that must show its certificate, as Kafka's `ssl.client.auth=required` has it."""
    client = context_of(
        {
            "ssl.truststore.location": str(STORES / trust),
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.keystore.location": str(STORES / "server.jks"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
        }
    )
    held = read_key_store((STORES / "server.jks").read_bytes(), STORE_PASSWORD, KEY_PASSWORD)
    (tmp_path / "server.pem").write_bytes(held.key + held.certificates)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=held.certificates.decode())
    shake_hands(client, server)


def test_a_client_and_a_broker_with_stores_of_keytool(tmp_path: Path) -> None:
    own = {
        "ssl.keystore.location": str(STORES / "server.jks"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.location": str(STORES / "trust.jks"),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.truststore.type": "JKS",
    }
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.client.auth": "required",
        "offsets.topic.num.partitions": "1",
        **own,
    }
    running = BrokerThread(tmp_path / "data", config, sync="off")
    try:
        running.broker.logs.create_topic("events", partitions=2)
        options = {"security.protocol": "SSL", "default.api.timeout.ms": "10000", **own}
        servers = f"127.0.0.1:{running.endpoint('SSL').port}"
        client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": servers, **options}))
        assert client.attempt("looking", client.topics)["events"].leaders.keys() == {0, 1}
        client.close()
        address = f"kafka://{servers}/group?{urlencode({'security.protocol': 'SSL', **own})}"
        with open_store(address) as store:
            assert dict(store.load()) == {}
    finally:
        running.stop()


def test_pem_in_files_and_in_settings_is_read(tmp_path: Path) -> None:
    made = make_certificate("me")
    store, certificate = made.write(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(store)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(certificate)
    files = {"ssl.truststore.location": str(certificate), "ssl.keystore.location": str(store)}
    texts = {
        "ssl.truststore.certificates": made.certificate_pem.replace("\n", " "),
        "ssl.keystore.certificate.chain": made.certificate_pem,
        "ssl.keystore.key": made.key_pem("k3y"),
        "ssl.key.password": "k3y",
    }
    (tmp_path / "me.p12").write_bytes(made.pkcs12("st0re"))
    packed = {"ssl.keystore.location": str(tmp_path / "me.p12"), "ssl.keystore.password": "st0re"}
    for options in (files, texts, {**files, **packed}):
        shake_hands(context_of(options), server)
    without = context_of({**files, "ssl.endpoint.identification.algorithm": ""})
    assert (without.check_hostname, without.verify_mode) == (False, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("store", "changed", "said"),
    [
        ("server.jks", {"ssl.keystore.password": "wrong"}, "server.jks cannot be read: the password is wrong"),
        ("server.jks", {"ssl.key.password": "wrong"}, r"the key's password \(ssl.key.password\) is wrong"),
        ("nowhere.jks", {}, "nowhere.jks cannot be read: No such file"),
        ("trust.p12", {"ssl.keystore.password": "wrong"}, "trust.p12 cannot be read: Invalid password"),
        ("../README.md", {}, "README.md cannot be read: "),
    ],
)
def test_a_store_that_cannot_be_read_is_named(store: str, changed: dict[str, str], said: str) -> None:
    options = {
        "ssl.keystore.location": str(STORES / store),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": KEY_PASSWORD,
        **changed,
    }
    settings = BrokerSettings.parse({"bootstrap.servers": "localhost:1", **options})
    with pytest.raises(OptionError, match=said):
        Cluster(settings.bootstrap_servers, "test", settings.connection, max_response_bytes=1)


def test_a_damaged_store_is_an_error_at_any_byte() -> None:
    data = (STORES / "server.jks").read_bytes()
    for end in range(len(data)):
        with pytest.raises(ValueError):
            read_key_store(data[:end], STORE_PASSWORD, KEY_PASSWORD)
        # Without a password there is no digest to compare.
        with pytest.raises(ValueError):
            read_key_store(data[:end], None, KEY_PASSWORD)
    for at in range(4, len(data)):
        with pytest.raises(ValueError):
            read_key_store(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], STORE_PASSWORD, KEY_PASSWORD)
