"""Packed integers written by hand are those that protobuf writes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topospread.transports.grpc.encode import packed
from topospread_proto.v1 import spread_engine_pb2 as pb

RAW = pb.ScoreResponse.RAW_FIELD_NUMBER

numbers = st.one_of(
    *(st.integers(0, (1 << bits) - 1) for bits in (7, 8, 14, 21, 28, 29, 56, 57, 63))
)


@given(st.lists(numbers, max_size=40))
def test_any_numbers_come_back(values: list[int]):
    assert packed(RAW, np.array(values, dtype=np.int64)) == (
        pb.ScoreResponse(raw=values).SerializeToString()
    )


@given(st.lists(st.integers(0, 127), min_size=1), st.integers(1, 8))
def test_numbers_of_one_length_come_back(values: list[int], width: int):
    longer = [(1 << 7 * width) - 1 - value for value in values]
    assert packed(RAW, np.array(longer, dtype=np.int64)) == (
        pb.ScoreResponse(raw=longer).SerializeToString()
    )
