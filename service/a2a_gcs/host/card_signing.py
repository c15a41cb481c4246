"""Signs agent cards."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

from a2a.types.a2a_pb2 import AgentCard
from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from a2a_gcs.errors import ConfigError

_EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def card_signer(key_file: Path, key_id: str | None) -> Callable[[AgentCard], AgentCard]:
    """Adds a signature to a card, which then must not change any more.

    Args:
        key_file: A private key in PEM: EC, RSA or Ed25519.
        key_id: Its name in the signature; None for the SHA-256 of the public key.

    Raises:
        ConfigError: There is no such file, or no such key in it.
    """
    try:
        pem = key_file.read_bytes()
        key = load_pem_private_key(pem, password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise ConfigError(f"card_signing_key {key_file} is no private key in PEM: {e}") from e
    match key:
        case ec.EllipticCurvePrivateKey(curve=curve) if curve.name in _EC_ALGORITHMS:
            algorithm = _EC_ALGORITHMS[curve.name]
        case rsa.RSAPrivateKey():
            algorithm = "RS256"
        case ed25519.Ed25519PrivateKey():
            algorithm = "EdDSA"
        case _:
            raise ConfigError(f"card_signing_key {key_file} is neither EC (P-256, P-384, P-521), RSA nor Ed25519")
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    name = key_id or base64.urlsafe_b64encode(hashlib.sha256(public).digest()).rstrip(b"=").decode()
    return create_agent_card_signer(pem, ProtectedHeader(kid=name, alg=algorithm, jku=None, typ="JOSE"))
