"""Packed integers written by hand are read by protobuf as what they were."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from topospread.codec.fields import packed, packed_from
from topospread_proto.v1 import decision_service_pb2 as pb

RAW = pb.ScoreResponse.RAW_FIELD_NUMBER

numbers = st.one_of(
    *(st.integers(0, (1 << bits) - 1) for bits in (7, 8, 14, 21, 28, 29, 56, 57, 63))
)


@given(st.lists(numbers, max_size=40))
def test_packed_integers_are_read_back(values: list[int]):
    written = packed(RAW, np.array(values, dtype=np.int64))
    assert pb.ScoreResponse.FromString(written).raw == values


@given(st.lists(numbers, min_size=1, max_size=40), st.data())
def test_integers_picked_from_a_table_are_read_back(table: list[int], data: st.DataObject):
    at = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=40))
    written = packed_from(RAW, table, np.array(at, dtype=np.intp))
    assert pb.ScoreResponse.FromString(written).raw == [table[place] for place in at]
