"""Lines of text: what they may look like, what is wrong with one, and that native and Python's loops agree on all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylax.graph.stream import lines, native
from dorylax.graph.stream.lines import Kind, LineError, Names, fields_of, names_in, parse

NATIVE = pytest.param(True, marks=pytest.mark.skipif(native._load() is None, reason="no native library"))
PAIR = (Kind.INTEGER, Kind.INTEGER)


@pytest.fixture(params=[NATIVE, False], ids=["native", "python"])
def by(request, monkeypatch):
    """Which of the two reads."""
    monkeypatch.setenv("DORYLAX_NATIVE", "" if request.param else "0")


def _plain(parsed):
    return [
        [column.name(k) for k in range(len(column.table))] if isinstance(column, Names) else column.tolist()
        for column in parsed.columns
        if column is not None
    ]


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        (b"1 2\n3 4\n", ""),
        (b"1\t2\r\n3\t4", ""),
        (b" 1 , 2 \n3;4\n", ""),
        (b"# c\n\n  % d\n1 2\n \t\n3 4\n# end", ""),
        (b'"1","2"\n3,4\n', ","),
        (b" 1 ,2\n3, 4 \r\n", ","),
        (b"1|2\n3|4\n", "|"),
        (b"1 \t 2\n3\t4\n", "\t"),
        (b"+1 2\n3 +4\n", ""),
    ],
)
def test_what_lines_may_look_like(by, text, separator):
    parsed = parse(text, PAIR, separator)
    assert _plain(parsed) == [[1, 3], [2, 4]]
    assert parsed.lines == text.count(b"\n") + (not text.endswith(b"\n"))


def test_kinds_of_columns(by):
    text = "7 a 1.5 x\n-9223372036854775808 größe -2e3 y\n9223372036854775807 c inf z\n".encode()
    parsed = parse(text, (Kind.INTEGER, Kind.NAME, Kind.NUMBER, Kind.SKIP))
    assert _plain(parsed) == [[7, -(2**63), 2**63 - 1], ["a", "größe", "c"], [1.5, -2000.0, np.inf]]
    assert parsed.columns[3] is None


def test_fields_in_quotes_and_with_blanks(by):
    parsed = parse(b'"a b",x y\n c ,"d,e"\n', (Kind.NAME, Kind.NAME), ",")
    assert _plain(parsed) == [["a b", "c"], ["x y", "d,e"]]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (b"1 2\n3\n", "has 1 column, expected 2", 1),
        (b"1 2 3\n", "has more than 2 columns", 0),
        (b"1 2,\n", "has more than 2 columns", 0),
        (b"1,,2\n", "has in column 2 not an integer", 0),
        (b"# c\n\n1 2\nx 2\n", "has in column 1 not an integer", 3),
        (b"1 2x\n", "has in column 2 not an integer", 0),
        (b"1 2.0\n", "has in column 2 not an integer", 0),
        (b"1 -\n", "has in column 2 not an integer", 0),
        (b"1 \0\n", "has in column 2 not an integer", 0),
        (b"1 9223372036854775808\n", "has in column 2 an integer that does not fit 64 bits", 0),
        (b"1 -9223372036854775809\n", "has in column 2 an integer that does not fit 64 bits", 0),
        (b"1 99999999999999999999999\n", "has in column 2 an integer that does not fit 64 bits", 0),
        (b'1 "2\n', r'has in column 2 a quote \("\) that is not closed', 0),
        (b'1 "2"3\n', r'has in column 2 a quote \("\) that is not closed, or does not end the field', 0),
    ],
)
def test_what_is_wrong_with_a_line(by, text, message, line):
    with pytest.raises(LineError, match=message) as caught:
        parse(text, PAIR)
    assert (caught.value.line, caught.value.first) == (line, sum(len(one) + 1 for one in text.split(b"\n")[:line]))


@pytest.mark.parametrize(
    ("text", "kinds", "message"),
    [
        (b"1 --2\n", (Kind.INTEGER, Kind.NUMBER), "column 2 not a number"),
        (b"1 +-2\n", (Kind.INTEGER, Kind.NUMBER), "column 2 not a number"),
        (b"1 2e\n", (Kind.INTEGER, Kind.NUMBER), "column 2 not a number"),
        (b"1 0x10\n", (Kind.INTEGER, Kind.NUMBER), "column 2 not a number"),
        (b'1 ""\n', (Kind.INTEGER, Kind.NAME), "column 2 not a name"),
    ],
)
def test_numbers_and_names(by, text, kinds, message):
    with pytest.raises(LineError, match=message):
        parse(text, kinds)


def test_numbers_are_rounded_as_python_does(by):
    words = ["0.1", "1e-400", "1e400", "-1e400", "5e-324", "123456789012345678901234567890", "+.5", "3.", "nan", "-INF"]
    (_, numbers) = parse("".join(f"0 {word}\n" for word in words).encode(), (Kind.SKIP, Kind.NUMBER)).columns
    np.testing.assert_array_equal(numbers, [float(word) for word in words])


TEXTS = st.lists(
    st.sampled_from([b"1", b"-20", b"x", b'"', b'"7"', b" ", b"\t", b",", b";", b"\n", b"\r\n", b"#", b"1.5", b"e3"]),
    max_size=30,
).map(b"".join)


@pytest.mark.skipif(native._load() is None, reason="no native library")
@given(
    TEXTS,
    st.sampled_from(["", ",", "\t"]),
    st.sampled_from([PAIR, (Kind.NAME, Kind.NUMBER, Kind.SKIP), (Kind.SKIP, Kind.NAME)]),
)
def test_both_loops_are_the_same(text, separator, kinds):
    found = []
    for switch in ("", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DORYLAX_NATIVE", switch)
            try:
                parsed = parse(text, kinds, separator, 5)
                tables = [one.table.tolist() if isinstance(one, Names) else one for one in parsed.columns]
                found.append(
                    (parsed.rows, parsed.lines, [None if one is None else np.asarray(one).tolist() for one in tables])
                )
            except LineError as error:
                found.append((str(error), error.line, error.first))
    assert repr(found[0]) == repr(found[1])


def test_names_have_the_same_hashes_wherever_they_come_from(by):
    words = ["a", "größe", "x" * 8, "x" * 9, "x" * 300]
    parsed = parse("".join(f"{word}\n" for word in words).encode(), (Kind.NAME,), seed=3).columns[0]
    built = names_in([word.encode() for word in words], 3)
    np.testing.assert_array_equal(parsed.table[:, :2], built.table[:, :2])
    assert [built.name(k) for k in range(5)] == words
    assert len({*built.table[:, :2].reshape(-1).tolist(), *names_in([b"a"], 4).table[0, :2].tolist()}) == 12


def test_fields_of_a_line():
    assert fields_of(b'a, "b c" ,d') == [b"a", b"b c", b"d"]
    with pytest.raises(LineError, match="a quote"):
        fields_of(b'a "b')


def test_rows_and_their_lines():
    text = b"# a\n1 2\n\n3 4"
    assert list(lines.row_lines(text)) == [(1, 4, b"1 2"), (3, 9, b"3 4")]
