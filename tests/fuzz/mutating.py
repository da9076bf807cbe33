"""Inputs that are nearly valid: seeds with bytes flipped, cut, doubled, exchanged, and spliced with each other."""

BORDERS = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
WORDS = tuple(b"\" { } [ ] null NaN 1e999 -0 ' ( ) ; -- * / \\ud800 \0".split())


def mutated(rng, seeds):
    """One of the seeds after one to eight changes."""
    content = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(content) + 1)
        length = min(len(content) - at, 1 << rng.randrange(8))
        change = rng.randrange(8)
        if change == 0 and at < len(content):
            content[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del content[at : at + length]
        elif change == 2:
            content[at:at] = content[at : at + length] * rng.choice((1, 1, 2, 64))
        elif change == 3:
            n_bytes = rng.choice((1, 2, 4, 8))
            content[at : at + n_bytes] = (rng.choice(BORDERS) & (256**n_bytes - 1)).to_bytes(n_bytes, "little")
        elif change == 4:
            content[at:at] = rng.choice(WORDS)
        elif change == 5:
            other = rng.choice(seeds)
            begin = rng.randrange(len(other) + 1)
            content[at : at + length] = other[begin : begin + length]
        elif change == 6:
            content[at : at + length] = rng.randbytes(length)
        elif digits := [n for n, byte in enumerate(content[:4096]) if 48 <= byte <= 57]:
            content[rng.choice(digits)] = rng.choice(b"0123456789-.e")
    return bytes(content)
