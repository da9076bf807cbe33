"""Kernels of encoding and discretisation, one thread each."""

from __future__ import annotations

import numpy as np

from learners.jit import bytes_at, kernel


@kernel
def translate(raw, lut, codes):  # (n,) unsigned integers, (domain,) codes; OUT (n,) codes
    """codes[row] = lut[raw[row]]."""
    for row in range(raw.size):
        codes[row] = lut[raw[row]]


@kernel
def translate_bytes(addresses, rows, luts, largest, x):
    """Codes of several columns of bytes in one call: x[rows[j], r] = luts[j, byte r of the column at addresses[j]].

    addresses (m,) uint64, rows (m,) int64, luts (m, 256) codes; largest (m,) int64: where it is not negative, the table is
    min(byte, largest) and need not be looked up, many times faster; OUT x (n_attributes, n) codes.
    """
    for j in range(addresses.size):
        raw, codes = bytes_at(addresses[j], x.shape[1]), x[rows[j]]
        if largest[j] >= 0:
            limit = np.uint8(largest[j])
            for row in range(codes.size):
                codes[row] = min(raw[row], limit)
        else:
            lut = luts[j]
            for row in range(codes.size):
                codes[row] = lut[raw[row]]


@kernel
def hash_bytes(text, first, last):
    """FNV-1a of text[first:last], folded to 63 bits."""
    h = np.uint64(14695981039346656037)
    for i in range(first, last):
        h = (h ^ np.uint64(text[i])) * np.uint64(1099511628211)
    return np.int64((h ^ (h >> np.uint64(32))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@kernel
def string_codes(ends, text, table, first, unseen, codes):  # (n + 1,) int32, (n_bytes,) uint8; OUT (n,) codes
    """First + position in the table of each text between two ends, or `unseen`."""
    mask = table.slots.size - 1
    for row in range(codes.size):
        begin, end = ends[row], ends[row + 1]
        slot = hash_bytes(text, begin, end) & mask
        code = unseen
        while table.slots[slot] >= 0:
            number = table.slots[slot]
            start = table.starts[number]
            is_equal = table.starts[number + 1] - start == end - begin
            i = 0
            while is_equal and i < end - begin:
                is_equal = text[begin + i] == table.text[start + i]
                i += 1
            if is_equal:
                code = first + number
                break
            slot = (slot + 1) & mask
        codes[row] = code


@kernel
def interval_codes(x, cuts, first_code, missing_code, codes):  # (n,) float64, (c,) float64; OUT (n,) codes
    """Code of the interval cuts[j - 1] < x <= cuts[j], shifted by first_code; NaN gets missing_code."""
    for row in range(x.size):
        value = x[row]
        if np.isnan(value):
            codes[row] = missing_code
        else:
            low, high = 0, cuts.size
            while low < high:
                middle = (low + high) // 2
                if cuts[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            codes[row] = first_code + low


@kernel
def _entropy(cumulative, first, last):
    """Class entropy in bits and number of classes of the histogram rows first..last-1."""
    total = 0.0
    for k in range(cumulative.shape[1]):
        total += cumulative[last, k] - cumulative[first, k]
    bits, n_present = 0.0, 0
    for k in range(cumulative.shape[1]):
        count = cumulative[last, k] - cumulative[first, k]
        if count > 0:
            n_present += 1
            bits -= count / total * np.log2(count / total)
    return bits, n_present, total


@kernel
def mdl_cuts(cumulative, is_cut):  # (n_bins + 1, n_classes) int64; OUT (n_bins,) uint8: cut below bin j
    """Recursive binary splits of least class entropy that the MDL criterion accepts; Fayyad and Irani (1993)."""
    stack = [(0, cumulative.shape[0] - 1)]
    while len(stack) > 0:
        first, last = stack.pop()
        bits, n_present, total = _entropy(cumulative, first, last)
        if last - first < 2 or n_present < 2:
            continue
        best, best_bits = -1, np.inf
        for cut in range(first + 1, last):
            bits_low, _, n_low = _entropy(cumulative, first, cut)
            bits_high, _, n_high = _entropy(cumulative, cut, last)
            mixed = (n_low * bits_low + n_high * bits_high) / total
            if mixed < best_bits:
                best, best_bits = cut, mixed
        bits_low, present_low, _ = _entropy(cumulative, first, best)
        bits_high, present_high, _ = _entropy(cumulative, best, last)
        # log2(3^k - 2) without overflow for many classes
        delta = n_present * np.log2(3.0) + np.log2(1.0 - 2.0 * 3.0 ** (-n_present))
        delta -= n_present * bits - present_low * bits_low - present_high * bits_high
        if bits - best_bits > (np.log2(total - 1.0) + delta) / total:
            is_cut[best] = 1
            stack.append((first, best))
            stack.append((best, last))
