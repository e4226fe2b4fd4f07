"""What a wrong word may be meant for."""

from __future__ import annotations

import pytest

from dorylax.near_matches import close, did_you_mean


@pytest.mark.parametrize(
    ("word", "choices", "expected"),
    [
        ("asinc", ("no-pipe", "pipe", "async"), ["async"]),
        ("METIS", ("metis", "ldg"), ["metis"]),
        ("Cora", ("PubMed", "cora", "CiteSeer"), ["cora"]),
        ("gnc", ("gcn", "gat", "sgc", "gin"), ["sgc", "gin", "gcn"]),
        ("wall", ("real", "virtual"), []),  # half of the letters are not enough
        ("patience", ("patience", "patiences", "stations"), ["patience", "patiences"]),  # a poor match is left out
        (3, ("1", "2"), []),
    ],
)
def test_near_ones_come_first_and_poor_ones_not_at_all(
    word: object, choices: tuple[str, ...], expected: list[str]
) -> None:
    assert close(word, choices) == expected


def test_a_refusal_takes_more_than_a_hint() -> None:
    assert close("label", ("labels",), cutoff=0.75) == ["labels"]
    assert close("lable", ("labels",)) == ["labels"]
    assert close("lable", ("labels",), cutoff=0.75) == []


def test_without_a_near_one_all_are_told() -> None:
    assert did_you_mean("metiss", ("metis", "ldg")) == "did you mean metis?"
    assert did_you_mean("zz", iter(("metis", "ldg"))) == "choose from metis, ldg"
