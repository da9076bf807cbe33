"""Signed receipts of forgotten rows: their canonical form, signature and files in the workspace.

A receipt is one line of JSON with sorted keys, without blanks and in ASCII. Its `signature` covers the same line without
that member. `receipts/` holds one file for each, the key that signs (`signing.secret`, PKCS #8), its public key
(`public.pem`), and the key of the hashes of conditions (`conditions.secret`).

References
----------
RFC 2104 (HMAC), RFC 8032 (Ed25519), RFC 6962, section 2.1 (Merkle tree hash).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.control.paging import DEFAULT_LIMIT, MAX_LIMIT, Page
from storage.errors import AlteredReceipt, CorruptFile, ForeignReceipt, InvalidCursor, InvalidReceipt, NotFound
from storage.files.atomic_files import read_or_create_secret, write_file_atomically
from storage.files.workspace_layout import checked_resource_name, is_valid_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = "fewpass receipt 1"
KEY_BYTES = 32


def canonical_json(content: object) -> bytes:
    """Return the one form of a JSON value: sorted keys, no blanks, ASCII."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode(
        "ascii"
    )


def merkle_root(leaves: Sequence[bytes]) -> str:
    """Return the Merkle tree hash of some leaves in hexadecimal digits (RFC 6962, section 2.1)."""
    return _tree_hash(leaves).hex()


def _tree_hash(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    left = 1 << (len(leaves) - 1).bit_length() - 1  # the largest power of two below their number
    return hashlib.sha256(b"\x01" + _tree_hash(leaves[:left]) + _tree_hash(leaves[left:])).digest()


class Receipts:
    """The receipts of a workspace; keys are made on first use. Signing needs the library `cryptography`."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "receipts"

    def condition_hmac(self, condition: str) -> str:
        """Return the HMAC-SHA256 of a condition, keyed with a secret of the workspace, in hexadecimal digits."""
        make = partial(secrets.token_bytes, KEY_BYTES)
        key = read_or_create_secret(self.folder / "conditions.secret", make)
        return hmac.new(key, condition.encode(), hashlib.sha256).hexdigest()

    def write(self, receipt_id: str, content: Mapping[str, object]) -> dict[str, Any]:
        """Sign and store a receipt, and return it; one of the same id is replaced. Raises Unwritable or InvalidName."""
        key = self._signing_key()
        raw = key.public_key().public_bytes_raw().hex()
        receipt = {**content, "format": FORMAT, "id": receipt_id, "public_key": raw}
        receipt["signature"] = key.sign(canonical_json(receipt)).hex()
        path = self.folder / f"{checked_resource_name('receipt', receipt_id)}.json"
        with write_file_atomically(path, replace=True, mode=0o440) as draft:
            draft.write_bytes(canonical_json(receipt) + b"\n")
        return receipt

    def read(self, receipt_id: str) -> bytes:
        """Return the bytes of a receipt (NotFound)."""
        if is_valid_name(receipt_id):
            try:
                return (self.folder / f"{receipt_id}.json").read_bytes()
            except FileNotFoundError:
                pass
        raise NotFound("receipt", receipt_id, [path.stem for path in self._paths()])

    def page(self, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[dict[str, Any]]:
        """Return a page of the receipts, newest first. Raises InvalidCursor, or CorruptFile for a file that is no JSON."""
        receipts = sorted(map(_parsed, self._paths()), key=lambda receipt: (receipt["at"], receipt["id"]), reverse=True)
        ids = [receipt["id"] for receipt in receipts]
        if cursor is not None and cursor not in ids:
            raise InvalidCursor(cursor)
        first = 0 if cursor is None else ids.index(cursor) + 1
        items = tuple(receipts[first : first + min(max(limit, 1), MAX_LIMIT)])
        return Page(items, items[-1]["id"] if first + len(items) < len(ids) else None)

    def public_key(self) -> bytes | None:
        """Return the public key of this workspace as PEM; None where nothing was signed yet."""
        try:
            return (self.folder / "public.pem").read_bytes()
        except FileNotFoundError:
            return None

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.json") if is_valid_name(path.stem))

    def _signing_key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        form, pem = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.Encoding.PEM
        path = self.folder / "signing.secret"
        stored = read_or_create_secret(path, _new_signing_key)
        try:
            key = serialization.load_pem_private_key(stored, None)
        except ValueError:
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise CorruptFile(path, "it contains no Ed25519 key. Restore it from a backup.")
        public = key.public_key().public_bytes(pem, form)
        stands = self.folder / "public.pem"
        if not stands.exists() or stands.read_bytes() != public:
            with write_file_atomically(stands, replace=True, mode=0o444) as draft:
                draft.write_bytes(public)
        return key


def _new_signing_key() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return Ed25519PrivateKey.generate().private_bytes(pem, form, serialization.NoEncryption())


def _parsed(path: Path) -> dict[str, Any]:
    try:
        receipt = json.loads(path.read_bytes())
        if isinstance(receipt["at"], str) and receipt["id"] == path.stem:
            return dict(receipt)
    except (ValueError, TypeError, KeyError):
        pass
    raise CorruptFile(path, "it is not a receipt. Restore it from a backup.")


def is_receipt(data: bytes) -> bool:
    """Return whether bytes are a JSON object with the members that mark a receipt, signed or not."""
    try:
        receipt = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(receipt, dict) and {"format", "signature"} <= receipt.keys()


def _signed_content(data: bytes, key: Ed25519PublicKey) -> dict[str, Any] | None:
    """Return the content of a receipt without its signature; None if a key did not sign exactly these bytes."""
    from cryptography.exceptions import InvalidSignature

    try:
        receipt = json.loads(data)
        # Other bytes may mean the same JSON, or another JSON to another reader.
        is_canonical = data.removesuffix(b"\n") == canonical_json(receipt)
        digits = receipt.pop("signature")
        signature = bytes.fromhex(digits)  # which takes capitals, too
        key.verify(signature if is_canonical and signature.hex() == digits else b"", canonical_json(receipt))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidSignature):
        return None
    return dict(receipt)


def _why_invalid(data: bytes, key: Ed25519PublicKey) -> InvalidReceipt:
    """Return the error of a receipt that a key did not sign: another key signed it, or it was altered."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = bytes.fromhex(json.loads(data)["public_key"])
        own = Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, TypeError, KeyError, RecursionError):
        own = None
    if own is not None and raw != key.public_bytes_raw() and _signed_content(data, own) is not None:
        return ForeignReceipt(
            f"Another key signed the receipt: it names {raw.hex()[:16]}…, and the key to verify with is "
            f"{key.public_bytes_raw().hex()[:16]}…. Ask the owner of that workspace for the public key (fewpass receipts key), and verify "
            "with it: fewpass receipts verify FILE --key FILE."
        )
    return AlteredReceipt(
        "The signature of the receipt is invalid: the receipt was altered or reformatted. Get it again with fewpass receipts show."
    )


def verified_receipt(data: bytes, public_pem: bytes) -> dict[str, Any]:
    """Return the content of a receipt that the owner of a public key (PEM) signed, exactly in these bytes.

    The last line break may be missing. Raises AlteredReceipt, ForeignReceipt or InvalidReceipt.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(public_pem)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidReceipt("The key is not an Ed25519 public key in PEM: use what fewpass receipts key prints.")
    receipt = _signed_content(data, key)
    if receipt is None:
        raise _why_invalid(data, key)
    leaves = [canonical_json(file) for file in receipt.get("files", ())]
    if receipt.get("format") != FORMAT or receipt.get("merkle_root") != merkle_root(leaves):
        raise InvalidReceipt(f"The receipt is signed, but is not a {FORMAT!r}: a newer fewpass may read it.")
    return dict(receipt)
