"""Signed receipts: what is altered does not hold."""

import hashlib
import json
import random

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from storage.datasets.receipts import Receipts, canonical_json, merkle_root, verified_receipt
from storage.errors import CorruptFile, ForeignReceipt, InvalidCursor, InvalidReceipt, NotFound

FILES = [{"sha256": f"{i:064x}", "n_rows": 10, "n_forgotten": i} for i in range(1, 6)]
CONTENT = {
    "at": "2026-11-28T12:00:00+00:00",
    "subject": {"dataset": "sales"},
    "files": FILES,
    "merkle_root": merkle_root([canonical_json(file) for file in FILES]),
    "rows": {"before": 50, "forgotten": 15, "after": 35},
    "proof": {"status": "proved", "versions": [{"version": "daily@2", "is_equal": True, "n_rows": 35}]},
}
ALTERED = "The signature of the receipt is invalid: the receipt was altered or reformatted. Get it again with fewpass receipts show"


@pytest.fixture(scope="module")
def receipts(tmp_path_factory):
    made = Receipts(tmp_path_factory.mktemp("workspace"))
    made.write("job-1", CONTENT)
    return made


def is_refused(data, key):
    with pytest.raises(InvalidReceipt, match=ALTERED):
        verified_receipt(data, key)
    return True


def test_a_receipt_holds_as_it_was_written(receipts):
    data = receipts.read("job-1")
    assert verified_receipt(data, receipts.public_key()) == verified_receipt(data[:-1], receipts.public_key())
    assert verified_receipt(data, receipts.public_key()).items() > CONTENT.items()


def test_a_thousand_altered_receipts_are_refused(receipts):
    data, key, rng = receipts.read("job-1"), receipts.public_key(), random.Random(0)
    for i in range(1000):
        place = i if i < len(data) else rng.randrange(len(data))
        flipped = bytearray(data)
        flipped[place] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 1 + rng.randrange(255)])
        assert is_refused(bytes(flipped), key)


def places(value, path=()):
    """The path of every member of a JSON value, with those in it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*path, name)
        yield from places(member, (*path, name))


def test_every_changed_or_removed_member_is_refused(receipts):
    data, key = receipts.read("job-1"), receipts.public_key()
    every = list(places(json.loads(data)))
    assert len(every) > 30
    for path in every:
        for is_removed in (False, True):
            receipt = within = json.loads(data)
            for name in path[:-1]:
                within = within[name]
            if is_removed:
                del within[path[-1]]
            else:
                within[path[-1]] = "other"
            assert is_refused(canonical_json(receipt), key), path
    assert is_refused(canonical_json(json.loads(data) | {"more": 1}), key)


def test_other_forms_of_the_same_json_are_refused(receipts):
    data, key = receipts.read("job-1"), receipts.public_key()
    signature = json.loads(data)["signature"].encode()
    twice = data.replace(b'{"at":', b'{"at":"then","at":', 1)
    forms = [json.dumps(json.loads(data)).encode(), data + b"\n", twice, data.replace(signature, signature.upper())]
    for form in [*forms, b"", b"[]", b"null", b"7", b"\xff", b'"x"', b"[" * 100_000, data[:-2]]:
        assert is_refused(form, key)


def test_another_key_is_refused(receipts, tmp_path):
    other = Receipts(tmp_path)
    other.write("job-1", CONTENT)
    with pytest.raises(ForeignReceipt, match=r"Another key signed the receipt: it names [0-9a-f]{16}…, and the key"):
        verified_receipt(receipts.read("job-1"), other.public_key())
    # Altered for one key is altered for another; and a receipt that names another key than that which signed it is altered.
    altered = receipts.read("job-1").replace(b"job-1", b"job-2")
    keys = [json.loads(each.read("job-1"))["public_key"].encode() for each in (receipts, other)]
    assert is_refused(altered, other.public_key()) and is_refused(altered, receipts.public_key())
    assert is_refused(receipts.read("job-1").replace(*keys), receipts.public_key())
    with pytest.raises(InvalidReceipt, match="The key is not an Ed25519 public key in PEM"):
        verified_receipt(receipts.read("job-1"), b"junk")


def test_a_signed_root_of_other_files_is_refused(receipts):
    receipts.write("job-9", CONTENT | {"files": FILES[1:]})
    with pytest.raises(InvalidReceipt, match="The receipt is signed, but is not a 'fewpass receipt 1'"):
        verified_receipt(receipts.read("job-9"), receipts.public_key())
    (receipts.folder / "job-9.json").unlink()


def test_the_merkle_root_is_that_of_the_rfc():
    def node(left, right):
        return hashlib.sha256(b"\1" + left + right).digest()

    a, b, c = (hashlib.sha256(b"\0" + leaf).digest() for leaf in (b"a", b"b", b"c"))
    assert merkle_root([]) == hashlib.sha256().hexdigest()
    assert merkle_root([b"a", b"b", b"c"]) == node(node(a, b), c).hex()
    assert merkle_root([b"a", b"b", b"c", b"a", b"b"]) == node(node(node(a, b), node(c, a)), b).hex()


def test_keys_are_of_their_owner_alone_and_stay(receipts):
    modes = {path.name: path.stat().st_mode & 0o777 for path in receipts.folder.glob("*.secret")}
    receipts.condition_hmac("customer = 7777")
    assert modes["signing.secret"] == (receipts.folder / "conditions.secret").stat().st_mode & 0o777 == 0o600
    key = load_pem_private_key((receipts.folder / "signing.secret").read_bytes(), None)
    raw = key.public_key().public_bytes_raw().hex()
    receipts.write("job-2", CONTENT)
    assert {json.loads(receipts.read(name))["public_key"] for name in ("job-1", "job-2")} == {raw}
    (receipts.folder / "job-2.json").unlink()


def test_the_hash_of_a_condition_cannot_be_guessed(receipts, tmp_path):
    condition = "customer = 7777"
    hashed = receipts.condition_hmac(condition)
    assert hashed == Receipts(receipts.folder.parent).condition_hmac(condition)
    assert hashed not in {hashlib.sha256(condition.encode()).hexdigest(), Receipts(tmp_path).condition_hmac(condition)}


def test_pages(tmp_path):
    receipts = Receipts(tmp_path)
    assert receipts.page().items == () and receipts.public_key() is None
    for i in range(3):
        receipts.write(f"job-{i}", CONTENT | {"at": f"2026-11-2{i}T00:00:00+00:00"})
    first = receipts.page(2)
    assert [receipt["id"] for receipt in first.items] == ["job-2", "job-1"]
    rest = receipts.page(2, first.next_cursor)
    assert [receipt["id"] for receipt in rest.items] == ["job-0"] and rest.next_cursor is None
    with pytest.raises(
        InvalidCursor, match=r"Cursor 'x' does not belong to this list. Pass next_cursor of the previous page unchanged"
    ):
        receipts.page(2, "x")
    for name in ("job-7", "../signing", "x\n"):
        with pytest.raises(NotFound, match="There is no receipt"):
            receipts.read(name)
    (receipts.folder / "job-7.json").write_text("{}")
    with pytest.raises(CorruptFile, match=r"it is not a receipt. Restore it from a backup"):
        receipts.page()


def test_a_damaged_key_is_named(tmp_path):
    receipts = Receipts(tmp_path)
    receipts.folder.mkdir()
    (receipts.folder / "signing.secret").write_bytes(b"")
    with pytest.raises(CorruptFile, match=r"signing\.secret.*it contains no Ed25519 key"):
        receipts.write("job-1", CONTENT)
