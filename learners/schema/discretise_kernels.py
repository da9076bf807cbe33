"""Single-threaded kernels for encoding and discretization."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

ROUGH_BITS = 1e-8  # a row: far more than rough entropies are wrong by
FRACTION_BITS, ONE_BITS = (1 << 52) - 1, 1023 << 52
MOST_EXACT = 2.0**52  # up to which float64 has every whole number


BLOCK_ROWS = 1024  # numbers of which the first cache holds all that a search needs
MOST_COMPARED = 48  # cut points that are compared with every number, without a search: 1.2 ns a number for 15, not 14


@kernel
def interval_codes(x, cuts, first_code, missing_code, codes):  # (n,) float64, (c,) float64; OUT (n,) codes
    """Write the code of the interval cuts[j - 1] < x <= cuts[j], plus first_code; NaN gets missing_code."""
    below = np.empty(min(x.size, BLOCK_ROWS), np.int64)
    block = np.empty(below.size)  # a copy: x may be read-only, which would need a second form of the kernels below
    for start in range(0, x.size, BLOCK_ROWS):
        n = min(x.size - start, BLOCK_ROWS)
        for row in range(n):
            block[row] = x[start + row]
        block_interval_codes(block[:n], cuts, first_code, missing_code, below, codes[start : start + n])


@inner_kernel
def block_interval_codes(x, cuts, first_code, missing_code, below, codes):  # (b,) int64 below; OUT (b,) codes
    """Encode a few numbers as `interval_codes` does, all taking each search step together to avoid branch
    mispredictions.

    below: scratch for at least as many numbers.
    """
    # below: how many cut points, which are finite, are below each number; of NaN any number up to all of them.
    for row in range(x.size):
        below[row] = 0
    if cuts.size <= MOST_COMPARED:
        whole = cuts.size - cuts.size % 4
        for j in range(0, whole, 4):
            a, b, c, d = cuts[j], cuts[j + 1], cuts[j + 2], cuts[j + 3]
            for row in range(x.size):
                value = x[row]
                below[row] += np.int64(a < value) + np.int64(b < value) + np.int64(c < value) + np.int64(d < value)
        for j in range(whole, cuts.size):
            a = cuts[j]
            for row in range(x.size):
                below[row] += np.int64(a < x[row])
    left = cuts.size if cuts.size > MOST_COMPARED else 0  # candidates beyond below[row]
    while left > 0:
        half = (left + 1) // 2
        for row in range(x.size):
            # The sign says whether the cut is below; 0.0 makes -0.0 none. A comparison would become a branch, mistaken half of
            # the time: 42 ns a number for 5.
            sign = np.float64(cuts[np.uint64(below[row] + half - 1)] - x[row] + 0.0).view(np.int64) >> 63
            below[row] += half & sign
        left -= half
    for row in range(x.size):
        codes[row] = missing_code if np.isnan(x[row]) else first_code + below[row]


@inner_kernel
def first_step_below_cuts(cuts, step):
    """Return the last multiple of a step that is not above the first cut point."""
    return np.floor(cuts[0] / step) * step


@inner_kernel
def cut_counts_below_steps(cuts, step, most):  # (c,) float64, ascending
    """Count the cut points below each multiple of a step, from `first_step_below_cuts` to the first multiple above all,
    (m,) int64.

    Empty if there are more than `most` multiples, or they are too large to be distinguished.
    """
    n = 0.0
    if most > 0 and max(-cuts[0], cuts[-1]) < MOST_EXACT:
        n = np.floor((cuts[-1] - first_step_below_cuts(cuts, step)) / step) + 2.0
    table, below = np.empty(np.int64(n) if n <= most else 0, np.int64), 0
    for place in range(table.size):
        while below < cuts.size and cuts[below] < first_step_below_cuts(cuts, step) + place * step:
            below += 1
        table[place] = below
    return table


@inner_kernel
def lookup_interval_codes(x, cuts, step, table, first_code, missing_code, codes):  # OUT (b,) codes
    """Encode multiples of a step and NaN as `block_interval_codes` does; table is the output of
    `cut_counts_below_steps`.
    """
    begin, last = first_step_below_cuts(cuts, step), np.float64(table.size - 1)
    for row in range(x.size):
        place = (x[row] - begin) / step
        place = place if place > 0.0 else 0.0  # so is NaN
        place = place if place < last else last
        codes[row] = missing_code if np.isnan(x[row]) else first_code + table[np.int64(place)]


@inner_kernel
def _entropy(cumulative, first, last):
    """Return the class entropy in bits and the number of classes of histogram rows first..last-1."""
    total = 0.0
    for k in range(cumulative.shape[0]):
        total += cumulative[k, last] - cumulative[k, first]
    bits, n_present = 0.0, 0
    for k in range(cumulative.shape[0]):
        count = cumulative[k, last] - cumulative[k, first]
        if count > 0:
            n_present += 1
            bits -= count / total * np.log2(count / total)
    return bits, n_present, total


@inner_kernel
def _times_log2(x):
    """Return x log2(x) of an integer to twelve digits, without branches: 2 artanh(t) of its fraction, t at most 0.172."""
    bits = np.float64(x).view(np.int64)
    exponent, fraction = (bits >> 52) - 1023, np.int64((bits & FRACTION_BITS) | ONE_BITS).view(np.float64)
    is_large = fraction > 1.4142135623730951
    fraction *= 0.5 if is_large else 1.0
    t = (fraction - 1.0) / (fraction + 1.0)
    s = t * t
    series = s * (1 / 7 + s * (1 / 9 + s * (1 / 11 + s * (1 / 13 + s / 15))))
    log = 2.0 * t * (1.0 + s * (1 / 3 + s * (1 / 5 + series)))
    return x * (exponent + is_large + log * 1.4426950408889634)


@inner_kernel
def _add_rough(cumulative, first, last, sign, rough):  # OUT (last - first - 1,) float64
    """Add to each cut of a range its class entropy in bits: rows below plus rows above, summed over classes."""
    for k in range(cumulative.shape[0]):
        low, high = cumulative[k, first], cumulative[k, last]
        for i in range(last - first - 1):
            count = cumulative[k, first + 1 + i]
            rough[i] += sign * (_times_log2(np.float64(count - low)) + _times_log2(np.float64(high - count)))


@kernel
def mark_mdl_cuts(cumulative, totals, is_cut):
    """Split recursively at the cut of least class entropy that the MDL criterion accepts; Fayyad and Irani (1993).

    All cuts are first compared approximately, many at a time; those that may be the best are then compared
    exactly.

    cumulative (n_classes, n_bins + 1) int64, totals (1, n_bins + 1) int64: of all classes; OUT is_cut (n_bins,) uint8: cut below
    bin j.
    """
    n_bins = cumulative.shape[1] - 1
    rough = np.empty(n_bins)
    firsts, lasts, waiting = np.empty(n_bins + 1, np.int64), np.empty(n_bins + 1, np.int64), 1  # ranges to split
    firsts[0], lasts[0] = 0, n_bins
    while waiting > 0:
        waiting -= 1
        first, last = firsts[waiting], lasts[waiting]
        bits, n_present, total = _entropy(cumulative, first, last)
        if last - first < 2 or n_present < 2:
            continue
        for i in range(last - first - 1):
            rough[i] = 0.0
        _add_rough(totals, first, last, 1.0, rough)
        _add_rough(cumulative, first, last, -1.0, rough)
        least = np.inf
        for i in range(last - first - 1):
            least = min(least, rough[i])
        best, best_bits, delta = first, np.inf, 0.0
        for cut in range(first + 1, last):
            if rough[cut - first - 1] > least + ROUGH_BITS * total:
                continue
            bits_low, present_low, n_low = _entropy(cumulative, first, cut)
            bits_high, present_high, n_high = _entropy(cumulative, cut, last)
            mixed = (n_low * bits_low + n_high * bits_high) / total
            if mixed < best_bits:
                best, best_bits = cut, mixed
                delta = n_present * bits - present_low * bits_low - present_high * bits_high
        # log2(3^k - 2) without overflow for many classes
        of_classes = n_present * np.log2(3.0) + np.log2(1.0 - 2.0 * 3.0 ** (-n_present))
        if bits - best_bits > (np.log2(total - 1.0) + (of_classes - delta)) / total:
            is_cut[best] = 1
            firsts[waiting], lasts[waiting] = first, best
            firsts[waiting + 1], lasts[waiting + 1] = best, last
            waiting += 2


@kernel
def translate_view_codes(x, attribute, starts, tables, out):
    """Translate the codes of each row to each view: tables[starts[view]:][x[attribute[view], row]].

    x (n_attributes, n) codes, attribute (n_views,), starts (n_views + 1,) int64, tables codes; OUT (n_views, n) codes.
    """
    for view in range(attribute.size):
        codes, table, own = x[attribute[view]], tables[starts[view] : starts[view + 1]], out[view]
        for row in range(codes.size):
            own[row] = table[codes[row]]
