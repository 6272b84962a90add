"""Keys and values of labels as texts show them."""

from __future__ import annotations

import pytest

from topospread.kube.label_syntax import label_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("topology.kubernetes.io/zone ", '"topology.kubernetes.io/zone "'),
        ("zone name", '"zone name"'),
        ("", '""'),
        ("a\tb", '"a\\tb"'),
        ("é", "é"),
    ],
)
def test_blanks_are_seen_in_quotes(text: str, shown: str) -> None:
    assert label_text(text) == shown
