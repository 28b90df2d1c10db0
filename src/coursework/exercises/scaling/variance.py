"""`score_variance`: the variance of a dot product, measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attend.dot_product import score_variance
from coursework.compare import Difference
from coursework.exercise import Call, Exercise, Misconception, Property, Seed, calls

FEW = 13, 2  #: d_k and n_pairs where dividing by n_pairs - 1 gives twice as much
NARROW = 1, 101  #: d_k and n_pairs where the entries' distribution shows most


def _seed(rng: np.random.Generator) -> Seed:
    return Seed(int(rng.integers(2**32)))


def _many_pairs(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((3, 10007), (17, 2503), (64, 1009), (257, 503))
    return calls(*((d_k, n_pairs, _seed(rng)) for d_k, n_pairs in sizes))


def _many_seeds(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((NARROW, 300), (FEW, 250), (FEW, 250))
    return tuple(Call((*size, _seed(rng)), times=n) for size, n in sizes)


def _seed_twice(rng: np.random.Generator) -> tuple[Call, ...]:
    one, other = _seed(rng), _seed(rng)
    return calls((5, 101, one), (5, 101, one), (5, 101, other))


def _single_pair(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(*((d_k, 1, _seed(rng)) for d_k in (2, 7, 3)))


def _number(value: Any) -> float | None:
    """A plain value as a float; None if it is no number, or NaN."""
    is_number = type(value) in (int, float) or (type(value) is np.ndarray and value.ndim == 0)
    if not is_number or np.asarray(value).dtype.kind not in "iuf":
        return None
    return None if np.isnan(float(value)) else float(value)


def _spread(d_k: int, n_pairs: int) -> float:
    """Six standard errors of the variance of `n_pairs` dot products."""
    return 6 * d_k * float(np.sqrt((2 + 6 / d_k) / n_pairs))


def _no_number(value: Any) -> Difference | None:
    if _number(value) is not None:
        return None
    return Difference("type", "what it returns is not a number", "it should be a finite number.")


def _near_d_k(call: Call, value: Any) -> Difference | None:
    d_k, n_pairs, _ = call.args
    given = _number(value)
    if given is None or abs(given - d_k) <= _spread(d_k, n_pairs):
        return _no_number(value)
    return Difference(
        "value",
        "the variance is not near d_k",
        f"it gives {given:.4g}; the variance of that many dot products lies within "
        f"{_spread(d_k, n_pairs):.2g} of {d_k}.",
    )


def _is_zero(call: Call, value: Any) -> Difference | None:
    given = _number(value)
    if given is not None and abs(given) <= 1e-9 * call.args[0]:
        return None
    return Difference(
        "value",
        "for one pair it does not give 0",
        "the variance is the mean squared distance from the *mean*; a single number is its own "
        "mean, so it must come to 0.",
    )


def _is_number(call: Call, value: Any) -> Difference | None:
    return _no_number(value)


def _are_numbers(call: Call, values: Any) -> Difference | None:
    return next(filter(None, map(_no_number, values)), None)


def _vary_as_measurements(asked: Any, values: Any) -> str | None:
    """Look at the numbers of many seeds; six standard errors are left to chance."""
    narrow, *few = (np.array([_number(v) for v in many]) for many in values)
    root, error = _root_of_few()
    roots = np.sqrt(np.maximum(np.concatenate(few), 0))
    if abs(np.mean(roots) - root) > 6 * error / math.sqrt(len(roots)):
        return (
            "with two pairs it is not, on average, the variance of two numbers about their mean: "
            "draw n_pairs pairs, no more and no fewer, measure from the mean of their dot "
            "products, not from 0, and divide by n_pairs"
        )
    # The spread of 300 is known to 6 %: of normal vectors it is 1, of uniform ones half of it.
    if np.std(narrow) < 0.68 * _deviation_of_narrow():
        return (
            "from seed to seed it varies less than a variance measured with n_pairs pairs of "
            "standard normal vectors"
        )
    return None


def _root_of_few() -> tuple[float, float]:
    """Mean and standard deviation of the root of the variance of two dot products.

    The variance of two numbers is a quarter of their squared difference. The difference of two
    products of normals is a Laplace variable, that of exponential ones: summed over d_k entries it
    is the difference of two gamma variables, of which the mean size is known.
    """
    d_k = FEW[0]
    mean = math.exp(math.lgamma(d_k + 0.5) - math.lgamma(d_k)) / math.sqrt(math.pi)
    return mean, math.sqrt(d_k / 2 - mean**2)


def _deviation_of_narrow() -> float:
    """Standard deviation of the variance of n products of two normals, whose kurtosis is 9."""
    n = NARROW[1]
    return math.sqrt((n - 1) ** 2 / n**3 * (9 - (n - 3) / (n - 1)))


def _repeats(asked: Any, values: Any) -> str | None:
    first, again, other = (_number(v) for v in values)
    if first != again:
        return "the same seed gives two different numbers: draw from rng, and from nothing else"
    if first == other:
        return "another seed gives the same number: the vectors must be drawn, from rng"
    return None


def _standard_deviation(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.std(np.sum(q * k, axis=1))


def _is_standard_deviation(call: Call, value: Any) -> bool:
    d_k, n_pairs, _ = call.args
    given = _number(value)
    if given is None or n_pairs == 1:
        return given == 0
    return abs(given**2 - d_k) <= _spread(d_k, n_pairs)


def _variance_of_entries(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.var(q * k)


def _is_variance_of_entries(call: Call, value: Any) -> bool:
    d_k, n_pairs, _ = call.args
    given = _number(value)
    if given is None or given == 1:  # no draw gives exactly 1
        return False
    if n_pairs == 1:  # the entries of one pair vary, its only dot product does not
        return given > 1e-9
    return abs(given - 1) <= 6 * np.sqrt(8 / (n_pairs * d_k))


def _without_drawing(d_k, n_pairs, rng):
    return float(d_k)


def _is_d_k(call: Call, value: Any) -> bool:
    return _number(value) == call.args[0]


def _sample_variance(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    scores = np.sum(q * k, axis=1)
    return np.sum((scores - np.mean(scores)) ** 2) / np.float64(n_pairs - 1)


def _is_sample_variance(call: Call, value: Any) -> bool:
    d_k, n_pairs, _ = call.args
    if n_pairs == 1:
        return type(value) is float and np.isnan(value)
    given = _number(value)
    return given is not None and abs(given - d_k) <= _spread(d_k, n_pairs)


def _with_itself(d_k, n_pairs, rng):
    q = rng.standard_normal((n_pairs, d_k))
    return np.var(np.sum(q * q, axis=1))


def _is_with_itself(call: Call, value: Any) -> bool:
    d_k, n_pairs, _ = call.args
    given = _number(value)
    if given is None or n_pairs == 1:
        return given == 0
    return abs(given - 2 * d_k) <= 6 * np.sqrt((8 * d_k**2 + 48 * d_k) / n_pairs)


SCORE_VARIANCE = Exercise(
    chapter=4,
    signature="score_variance(d_k, n_pairs, rng) -> float",
    task="""\
Measure how far dot products spread. Draw `n_pairs` pairs of vectors of width `d_k`, each entry from
the standard normal distribution, take the dot product of each pair, and return the **population
variance** of these `n_pairs` numbers: the mean of their squared distances from their mean.

- `rng` is a NumPy `Generator`; draw from it (`rng.standard_normal`) and from nothing else. The same
  seed must give the same number, another seed another. In which order you draw is up to you.
- `d_k` and `n_pairs` are whole numbers from 1 on. For a single pair the variance is 0.
- A Python float or a NumPy one will do. With many pairs the result must lie within six standard
  errors, $6\\,d_k\\sqrt{(2 + 6/d_k)/n_\\text{pairs}}$, of the true variance. With few pairs
  it must, over many seeds, have the mean and the spread that such a measurement has.""",
    reference=score_variance,
    properties=(
        Property(
            "with many pairs it comes near the true variance", 1, _many_pairs, compare=_near_d_k
        ),
        Property(
            "from seed to seed it varies as a variance measured with n_pairs pairs",
            1,
            _many_seeds,
            edge=True,
            compare=_are_numbers,
            together=_vary_as_measurements,
        ),
        Property(
            "the same seed gives the same number, another seed another",
            1,
            _seed_twice,
            compare=_is_number,
            together=_repeats,
        ),
        Property("a single pair has variance 0", 1, _single_pair, compare=_is_zero),
    ),
    misconceptions=(
        Misconception(
            "returns the standard deviation",
            "This is the standard deviation, √d_k. The variance is its square: it is the variance "
            "that grows in proportion to d_k.",
            _standard_deviation,
            symptom="the number is far too small, and grows like √d_k",
            recognises=_is_standard_deviation,
        ),
        Misconception(
            "takes the variance of the entries",
            "This is the variance of the single products q_i · k_i, which is 1 for every width. "
            "Sum the d_k products of a pair first: the dot product is one number a pair.",
            _variance_of_entries,
            symptom="the number stays near 1, whatever d_k is",
            recognises=_is_variance_of_entries,
        ),
        Misconception(
            "returns d_k without drawing",
            "d_k is what theory says. Here you measure whether theory is right: draw the vectors "
            "and take the variance of what comes out: it lies near d_k, hardly ever on it.",
            _without_drawing,
            symptom="every seed gives exactly d_k",
            recognises=_is_d_k,
        ),
        Misconception(
            "divides by n_pairs - 1",
            "This is the sample variance, which divides by n_pairs − 1. Asked for is the "
            "population variance, which divides by n_pairs (`np.var` does so by itself).",
            _sample_variance,
            symptom="for a single pair there is no number",
            recognises=_is_sample_variance,
        ),
        Misconception(
            "multiplies each vector with itself",
            "This is the variance of q · q, which is 2 d_k. Queries and keys are drawn apart: q · "
            "k needs two independent vectors a pair.",
            _with_itself,
            symptom="the number is about twice what it should be",
            recognises=_is_with_itself,
        ),
    ),
    hints=(
        "How many numbers does one pair of vectors contribute to the variance? One: its dot "
        "product.",
        "Draw an array of shape (n_pairs, d_k) for the queries and another for the keys. Multiply "
        "entry by entry, sum along the axis of width d_k, and you hold n_pairs dot products. Take "
        "their variance.",
        "`scores = np.sum(q * k, axis=...)` has shape `(n_pairs,)`, with `q = "
        "rng.standard_normal((n_pairs, d_k))` and `k` likewise. Then `np.var`.",
    ),
    minutes=10,
    returns=("the variance",),
)
