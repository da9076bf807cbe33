"""The sum of packed differences, as Parquet writes lengths."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

DAMAGED = -1
MOST_LENGTH = (1 << 31) - 1


@inner_kernel
def _varint(content, at):
    """A number of seven bits a byte and where it ends; the place is DAMAGED if it does not end."""
    found = np.uint64(0)
    for shift in range(0, 64, 7):
        if at >= content.size:
            return found, np.int64(DAMAGED)
        byte = np.uint64(content[at])
        at += 1
        found |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < 0x80:
            return found, np.int64(at)
    return found, np.int64(DAMAGED)


@inner_kernel
def _signed(number):
    return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))


@kernel
def sum_of_lengths(content, most):  # (n,) uint8; int64
    """The sum of at most `most` lengths that begin the content, in the encoding DELTA_BINARY_PACKED; DAMAGED if they are not sound."""
    block_size, at = _varint(content, np.int64(0))
    if at < 0:
        return np.int64(DAMAGED)
    n_groups, at = _varint(content, at)
    if at < 0:
        return np.int64(DAMAGED)
    n_values, at = _varint(content, at)
    if at < 0 or n_values > np.uint64(most) or n_groups == 0 or block_size > np.uint64(MOST_LENGTH):
        return np.int64(DAMAGED)
    first, at = _varint(content, at)
    value = _signed(first)
    per_group = np.int64(block_size // n_groups)
    if at < 0 or per_group == 0 or per_group % 8 != 0 or (n_values > 0 and not 0 <= value <= MOST_LENGTH):
        return np.int64(DAMAGED)
    left = np.int64(n_values)
    total = np.int64(0)
    if left > 0:
        total = value
        left -= 1
    while left > 0:
        least, at = _varint(content, at)
        widths = at
        at += np.int64(n_groups)
        if widths < 0 or at > content.size:
            return np.int64(DAMAGED)
        for group in range(np.int64(n_groups)):
            if left == 0:
                break
            width = np.int64(content[widths + group])
            if width > 64 or at + per_group * width // 8 > content.size:
                return np.int64(DAMAGED)
            for i in range(min(left, per_group)):
                packed = np.uint64(0)
                for bit in range(i * width, i * width + width):
                    is_set = content[at + (bit >> 3)] >> (bit & 7) & 1
                    packed |= np.uint64(is_set) << np.uint64(bit - i * width)
                value += _signed(least) + np.int64(packed)
                if not 0 <= value <= MOST_LENGTH:
                    return np.int64(DAMAGED)
                total += value
            left -= min(left, per_group)
            at += per_group * width // 8
    return total
