from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.serverless.backends.local.lines import READY, content_of, line_of


@given(st.binary())
def test_whatever_it_is_it_is_one_line(content: bytes) -> None:
    line = line_of(content)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert content_of(line) == content_of(line[:-1]) == content
    assert line != READY


@pytest.mark.parametrize("line", [READY, b"abc\n", b"\xff\xff\xff\xff\n"])
def test_what_is_no_base64_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="a line must be base64, got b"):
        content_of(line)
