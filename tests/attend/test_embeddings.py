"""Embedding as a lookup, and as the product with one-hot rows that it replaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attend

from .mistakes import mistakes, must_reject

TABLE = np.random.default_rng(0).standard_normal((7, 3))


def check_embed(embed):
    for dtype in (np.float16, np.float32, np.float64):
        table = TABLE.astype(dtype)
        for ids in ([], [4], [4, 0, 6], [[1, 1, 2], [6, 5, 4]], np.array([3, 2], dtype=np.uint8)):
            got = embed(ids, table)
            assert got.dtype == dtype
            expected = np.zeros((*np.shape(ids), 3))
            for where in np.ndindex(np.shape(ids)):
                expected[where] = table[np.asarray(ids)[where]]
            np.testing.assert_array_equal(got, expected)
    for outside in (-1, 7):
        try:
            embed([0, outside], TABLE)
        except IndexError:
            continue
        raise AssertionError(f"id {outside} has no row in a table of 7")


def test_embedding_takes_the_row_of_each_id():
    check_embed(attend.embed)


@mistakes(
    {
        check_embed: {
            "negative ids wrap": lambda ids, table: table[np.asarray(ids, dtype=int)],
            "one-hot in float64": lambda ids, table: attend.one_hot(ids, len(table)) @ table,
            "column for row": lambda ids, table: attend.embed(ids, table.T),
        }
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_a_lookup_is_the_product_with_one_hot_rows():
    ids = [[3, 0, 3], [6, 5, 1]]
    np.testing.assert_array_equal(attend.one_hot(ids, 7) @ TABLE, attend.embed(ids, TABLE))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_a_tensor_gives_a_tensor_that_can_be_differentiated(dtype):
    table = torch.tensor(TABLE, requires_grad=True)
    ids = torch.tensor([[1, 1, 2]], dtype=dtype)
    got = attend.embed(ids, table)
    torch.testing.assert_close(got, torch.nn.functional.embedding(ids.long(), table))
    got.sum().backward()
    assert table.grad.sum(-1).tolist() == [0, 6, 3, 0, 0, 0, 0]


def test_the_result_is_a_copy():
    rows = attend.embed([0, 1], TABLE)
    rows[:] = 0
    assert TABLE.all()


def test_ids_that_are_no_whole_numbers_are_refused():
    with pytest.raises(ValueError, match="must be whole numbers"):
        attend.embed(np.array([0.0, 1.0]), TABLE)
