"""An authority that signs certificates for tests. They pass the strict checks that are Python's default since 3.13."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.ports import LOOPBACK

_MAY_SIGN = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Writes PEM files below a directory; `file` has its own certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.file = directory / f"{name}.pem"
        made = self._signed(name, self._key, [x509.BasicConstraints(ca=True, path_length=0), _MAY_SIGN])
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, file: str = "", days: float = 60, begins: float = -2) -> Path:
        """Write a certificate and its key into one file, and return it.

        name: the common name; the certificate is valid for it and for 127.0.0.1.
        file: the file's name; "" takes the common name.
        days: how long it is valid from now.
        begins: days from now until it is valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address(LOOPBACK))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = self._signed(name, key, [names, issuer], days, begins)
        path = self._directory / f"{file or name}.pem"
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem))
        return path

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[x509.ExtensionType],
        days: float = 60,
        begins: float = -2,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        unsigned = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=-begins))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        for extension in extensions:
            unsigned = unsigned.add_extension(extension, isinstance(extension, x509.BasicConstraints | x509.KeyUsage))
        return unsigned.sign(self._key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
