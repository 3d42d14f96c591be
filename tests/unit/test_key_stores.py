from __future__ import annotations

import base64
import pickle
import ssl
from pathlib import Path
from urllib.parse import urlencode

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.running import BrokerThread
from odradek.broker.tls import load_tls
from odradek.errors import InvalidConfigError, OptionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import Cluster, TlsStores
from odradek.kafka.settings import BrokerSettings
from odradek.key_stores import read_key_store, read_pem
from odradek.offsets.store import open_store
from peers.certificates import make_certificate
from peers.cpu import in_standards

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


@pytest.mark.slow
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
        assert client.attempt("looking", client.topics)["events"].partitions.keys() == {0, 1}
        client.close()
        address = f"kafka://{servers}/group?{urlencode({'security.protocol': 'SSL', **own})}"
        with open_store(address) as store:
            assert dict(store.load()) == {}
    finally:
        running.stop()


def test_a_broker_serves_with_a_chain_that_is_signed_with_sha_1(caplog: pytest.LogCaptureFixture) -> None:
    """Java does; clients decide whether they trust it."""
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(STORES / "sha1-chain.jks"),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    server = load_tls(BrokerConfig(config), "SSL").context
    assert "is weak (ca md too weak)" in caplog.text
    held = read_key_store((STORES / "sha1-chain.jks").read_bytes(), STORE_PASSWORD)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.set_ciphers("DEFAULT:@SECLEVEL=0")
    client.load_verify_locations(cadata=held.certificates.decode())
    client.check_hostname = False
    shake_hands(client, server)


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


@pytest.mark.slow
def test_a_damaged_pem_is_read_once() -> None:
    """Not once for each of its blocks, none of which ends: that took minutes, in which the broker did nothing else."""
    blocks = "-----BEGIN CERTIFICATE-----\nAAAA\n" * 100_000

    def read() -> None:
        with pytest.raises(ValueError, match="holds no PEM"):
            read_key_store(blocks.encode(), None)

    assert in_standards(read) < 500


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.truststore.certificates"])
def test_a_trust_store_without_certificates_is_refused(tmp_path: Path, name: str) -> None:
    """OpenSSL would trust what the system trusts."""
    key = make_certificate("server").key_pem()
    (tmp_path / "trust.pem").write_text(key)
    text = str(tmp_path / "trust.pem") if name.endswith("location") else key
    with pytest.raises(OptionError, match=f"{name} has no certificates"):
        context_of({name: text})
    listener = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.client.auth": "required"}
    store, _ = make_certificate("server").write(tmp_path)
    config = BrokerConfig({**listener, "ssl.keystore.location": str(store), "ssl.truststore.type": "PEM", name: text})
    with pytest.raises(InvalidConfigError, match="has no certificates"):
        load_tls(config, "SSL")


def element(tag: int, *parts: bytes) -> bytes:
    """Returns an element of DER."""
    content = b"".join(parts)
    return bytes([tag, len(content)]) + content


def encrypted_key(rounds: int, kind: str = "2a864886f70d01050c") -> bytes:
    """Returns what a key of PBKDF2, or of another kind, says of its encryption."""
    number = element(2, rounds.to_bytes(4, "big"))
    derivation = element(0x30, element(6, bytes.fromhex(kind)), element(0x30, element(4, b"saltsalt"), number))
    cipher = element(0x30, element(6, bytes.fromhex("60864801650304012a")), element(4, bytes(16)))
    algorithm = element(0x30, element(6, bytes.fromhex("2a864886f70d01050d")), element(0x30, derivation, cipher))
    return element(0x30, algorithm, element(4, bytes(16)))


def test_a_key_that_takes_very_long_to_decrypt_is_refused() -> None:
    """Clients may set keys while a broker runs, and a number of rounds is easily written down."""

    def pem(key: bytes) -> str:
        encoded = base64.b64encode(key).decode()
        return f"-----BEGIN ENCRYPTED PRIVATE KEY-----{encoded}-----END ENCRYPTED PRIVATE KEY-----"

    good = encrypted_key(600_000)
    assert read_pem(pem(good)).key
    for told, key in (
        ("more than 2,000,000 rounds", encrypted_key(2_000_001)),
        ("not supported", encrypted_key(16_384, "2b06010401da47040b")),
        ("not DER", b"\x30\x80" + good[2:] + b"\0\0"),
        ("damaged", good[:50]),
    ):
        with pytest.raises(ValueError, match=told):
            read_pem(pem(key))
    # OpenSSL skips headers that are this short.
    with pytest.raises(ValueError, match="base64"):
        read_pem(pem(encrypted_key(2_000_001)).replace("KEY-----", "KEY-----\nA:b\n\n", 1))
    # It decrypts each key, until it finds one that it knows.
    assert read_pem(pem(good) * 100).key.count(b"BEGIN") == 1


def test_a_store_of_very_many_certificates_is_refused() -> None:
    """OpenSSL sorts those that it trusts for each one that is added."""
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert read_key_store((certificate * 2000).encode(), None).trusted()
    with pytest.raises(ValueError, match="more than 2,000 certificates"):
        read_key_store((certificate * 2001).encode(), None)
