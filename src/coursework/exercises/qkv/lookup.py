"""`soft_lookup`: a dictionary that answers with a blend, and hardens as it cools."""

from __future__ import annotations

import numpy as np

from attend.dot_product import soft_lookup
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import numbers


def _softmax(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def _question(
    rng: np.random.Generator,
    S: int,
    d_k: int,
    d_v: int,
    temperature: float,
    dtype: type = np.float64,
) -> Call:
    query, keys, values = (numbers(rng, shape, dtype) for shape in ((d_k,), (S, d_k), (S, d_v)))
    return Call((query, keys, values, temperature))


def _temperatures(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _question(rng, 3, 4, 2, 0.5),
        _question(rng, 5, 2, 7, 2.0),
        _question(rng, 2, 7, 3, 3),
        _question(rng, 7, 3, 5, 0.25),
        _question(rng, 11, 5, 4, 1.0),
        _question(rng, 4, 11, 1, 7.5),
    )


def _cold_and_hot(rng: np.random.Generator) -> tuple[Call, ...]:
    def stretched(call: Call) -> Call:
        query, keys, values, temperature = call.args
        return Call((10 * query, keys, values, temperature))

    _, keys, values, temperature = _question(rng, 5, 3, 4, 0.001).args
    keys[:, 0] = -np.abs(keys[:, 0]) - 5  # with the query (1, 0, 0), all scores are below 0
    return (
        stretched(_question(rng, 3, 5, 2, 0.001)),
        stretched(_question(rng, 7, 2, 3, 0.002)),
        stretched(_question(rng, 5, 7, 4, 0.003)),
        Call((np.eye(3)[0], keys, values, temperature)),
        _question(rng, 5, 2, 3, 1e6),
    )


def _other_arrays(rng: np.random.Generator) -> tuple[Call, ...]:
    columns = _question(rng, 5, 3, 2, 0.75)
    return (
        _question(rng, 3, 4, 2, 2, dtype=np.int64),
        _question(rng, 5, 2, 3, 1.5, dtype=np.int64),
        _question(rng, 2, 3, 7, 4, dtype=np.int64),
        _question(rng, 7, 5, 3, 0.5, dtype=np.float32),
        Call(tuple(np.asfortranarray(a) for a in columns.args[:3]) + columns.args[3:]),
    )


def _multiplied(query, keys, values, temperature):
    return _softmax(keys @ query * temperature) @ values


def _argmax(query, keys, values, temperature):
    return values[np.argmax(keys @ query)] * 1.0


def _ignored(query, keys, values, temperature):
    return _softmax(keys @ query) @ values


def _divided_after(query, keys, values, temperature):
    return _softmax(keys @ query) / temperature @ values


def _keys_blended(query, keys, values, temperature):
    return _softmax(keys @ query / temperature) @ keys


def _scaled_as_well(query, keys, values, temperature):
    return _softmax(keys @ query / np.sqrt(len(query)) / temperature) @ values


def _cosine(query, keys, values, temperature):
    lengths = np.sqrt(np.sum(keys**2, axis=1)) * np.sqrt(np.sum(query**2))
    return _softmax(keys @ query / lengths / temperature) @ values


def _weights_returned(query, keys, values, temperature):
    return _softmax(keys @ query / temperature)


def _mean_of_values(query, keys, values, temperature):
    return np.mean(values, axis=0)


def _no_exponential(query, keys, values, temperature):
    scores = keys @ query / temperature
    return scores / np.sum(scores) @ values


def _overflows(query, keys, values, temperature):
    e = np.exp(keys @ query / temperature)
    return e / np.sum(e) @ values


def _cut_to_the_values(query, keys, values, temperature):
    return (_softmax(keys @ query / temperature) @ values).astype(values.dtype)


SOFT_LOOKUP = Exercise(
    chapter=3,
    signature="soft_lookup(query, keys, values, temperature) -> (d_v,)",
    task="""\
A dictionary that always has an answer: it returns the values blended by how well their keys fit the
query. The temperature says how strict it is.

- `query` is `(K,)`, `keys` is `(S, K)`, `values` is `(S, d_v)`; `temperature` is a number above 0.
- The weights are the softmax of `keys · query / temperature`; return their blend of the values, a
  NumPy array of shape `(d_v,)`.
- A temperature of 0.001 must do no harm, and neither must one of 1,000,000.
- Floats come back, whatever comes in: float64, float32 or integers, in any memory order. The width
  of the floats is up to you. Leave the arrays as they are.""",
    reference=soft_lookup,
    properties=(
        Property("the values, blended at any temperature", 2, _temperatures),
        Property("very low and very high temperatures do no harm", 1, _cold_and_hot, edge=True),
        Property("float32, integers and any memory order will do", 1, _other_arrays, edge=True),
    ),
    misconceptions=(
        Misconception(
            "multiplies by the temperature",
            "You multiply the scores by the temperature, so that heat makes the lookup *stricter*. "
            "Divide: as in physics, heat levels differences out.",
            _multiplied,
            symptom="the temperature works the wrong way round",
        ),
        Misconception(
            "takes the best key at every temperature",
            "You return the value of the best key, as a temperature near 0 would. At any higher "
            "one the other values have a share: take the softmax.",
            _argmax,
            symptom="it does not blend",
        ),
        Misconception(
            "ignores the temperature",
            "The temperature makes no difference to your result. Divide the scores by it before "
            "the softmax.",
            _ignored,
            symptom="every temperature gives the same",
        ),
        Misconception(
            "divides after the softmax",
            "You divide the weights by the temperature, and not the scores. They no longer sum to "
            "1, and they are as strict as before.",
            _divided_after,
            symptom="your weights do not sum to 1",
        ),
        Misconception(
            "blends the keys",
            "You blend the keys. They say which entries fit; what a lookup returns are values.",
            _keys_blended,
            symptom="the result is made of keys",
        ),
        Misconception(
            "scales by √d_k as well",
            "You divide by √d_k beside the temperature. Here the temperature is the only scale.",
            _scaled_as_well,
            symptom="the lookup is less strict than asked for",
        ),
        Misconception(
            "compares directions only",
            "You divide by the lengths of the vectors: this is the cosine of their angle. Take the "
            "dot product as it is.",
            _cosine,
            symptom="the lengths of query and keys make no difference",
        ),
        Misconception(
            "returns the weights",
            "These are the weights. Asked for is what they make of the values.",
            _weights_returned,
            symptom="there is one number a key",
        ),
        Misconception(
            "averages the values",
            "You return the mean of the values, as an infinite temperature would. At any lower one "
            "the keys that fit count more.",
            _mean_of_values,
            symptom="the query makes no difference",
        ),
        Misconception(
            "leaves the exponential out",
            "You divide the scores by their sum. They may be negative, and the temperature "
            "cancels: take exp of each first.",
            _no_exponential,
            symptom="some weights are negative, and the temperature makes no difference",
        ),
        Misconception(
            "overflows",
            "At a low temperature the scores become huge, exp of them infinite, and ∞/∞ is not a "
            "number. Subtract the largest first.",
            _overflows,
            symptom="a low temperature makes NaN",
        ),
        Misconception(
            "cuts to the integers of the values",
            "You store the blend in the dtype of the values, which cuts it to integers where they "
            "are integers. A blend lies between the values.",
            _cut_to_the_values,
            symptom="integer values give an integer blend",
        ),
    ),
    hints=(
        "This is attention for a single query. What are the scores, and what does the temperature "
        "do to them before the softmax?",
        "One dot product for each key, divided by the temperature; the stable softmax over the S "
        "keys; then the weighted sum of the rows of `values`.",
        "`keys @ query` has shape (S,), and `weights @ values` has shape (d_v,).",
    ),
    minutes=10,
    returns=("the blend",),
)
