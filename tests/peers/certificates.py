"""Self-made certificates for tests of TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


class Certificate(NamedTuple):
    """A certificate that signs itself, and its key."""

    name: str
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ).decode()

    def pkcs12(self, password: str) -> bytes:
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(self.name.encode(), self.key, self.certificate, None, encryption)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write Kafka's PEM key store (the key, then the certificate), and the certificate alone."""
        store, certificate = folder / f"{self.name}.pem", folder / f"{self.name}.crt"
        store.write_text(self.key_pem() + self.certificate_pem)
        certificate.write_text(self.certificate_pem)
        return store, certificate


def make_certificate(
    name: str,
    organization: str | None = None,
    *,
    since: int = -10,
    days: int = 2,
    host: str = "localhost",
    key: rsa.RSAPrivateKey | None = None,
) -> Certificate:
    own = key or ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    subject = x509.Name(attributes)
    now = datetime.now(UTC)
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName(host)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=since))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(own, hashes.SHA256())
    )
    return Certificate(name, own, certificate)
