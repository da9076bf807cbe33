"""Draw the values of a variable of a discrete network given its parents, weighted by the evidence."""

from __future__ import annotations

from learners.kernels.jit import kernel
from learners.kernels.random import STEP, uniform_variate


# x is drawn from p(x | parents) λ(x), and the sum of these over x goes into the weight. Hard evidence is a λ that is zero but for
# one value.
@kernel
def draw_weighted_values(
    rows, which, likelihood, counter, codes, weights
):  # (n_rows, n_values), (n,) int64, (n_values,), uint64; OUT (n,) uint16, IN/OUT (n,) float64
    """Draw values of one variable, each from its row of p(x | parents), and weigh the samples: Fung, Chang (1989);
    Shachter, Peot (1989).
    """
    for sample in range(codes.size):
        shares = rows[which[sample]]
        total = 0.0
        for x in range(likelihood.size):
            total += shares[x] * likelihood[x]
        weights[sample] *= total
        counter += STEP
        left = uniform_variate(counter) * total
        chosen = 0
        for x in range(likelihood.size):
            share = shares[x] * likelihood[x]
            if share > 0.0:
                chosen = x
                if left < share:
                    break
                left -= share
        codes[sample] = chosen
    return counter
