"""Pages show what their commands print."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, text
from tools import worked_examples


@pytest.mark.parametrize("name", worked_examples.PAGES)
def test_the_output_of_commands_is_current(name):
    written = text(ROOT / "docs" / name)
    assert worked_examples.PROMPT in written
    assert "\ntopospread: " not in written, "a command of the page is refused"
    assert worked_examples.page(name) == written, "run `make docs`"
