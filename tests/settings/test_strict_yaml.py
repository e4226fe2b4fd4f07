"""YAML by the core schema, with lines, refusing what is ambiguous."""

from __future__ import annotations

import math

import pytest
import yaml

from dorylax.config import ConfigError
from dorylax.settings.strict_yaml import dump, parse, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-2", 0.01),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("10", 10),
        ("010", 10),
        ("+3", 3),
        ("0x1F", 31),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        # Text, though YAML 1.1 reads otherwise.
        ("on", "on"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("'1'", "1"),
        ("[1, 2e0]", [1, 2.0]),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        *("1e5", "+1e3", "12e03", "1e-2", ".5", "0x1F", "010", "10", "true", "null", "~", "", ".inf"),
        *("off", "1:30", "1_000", "2024-01-01", "=", "<<", "größer", "a: b", "- x", "two\nlines"),
        *(1e5, 1e-5, 1e300, -0.0, 3, True, None, [1, "1"]),
    ],
)
def test_what_is_written_is_read_again(value: object) -> None:
    """By this module, and by YAML 1.1."""
    text = dump({"key": value})
    for found in (parse(text, "f.yaml").value, yaml.safe_load(text)):
        assert found == {"key": value}
        assert type(found["key"]) is type(value)


def test_infinities_and_nan() -> None:
    assert scalar(".inf") == math.inf
    assert scalar("-.Inf") == -math.inf
    assert math.isnan(scalar(".nan"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a is given twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 1\n", "f.yaml:3: b is given twice (first on line 2)"),
        ("c: 0\na: &x 1\nb: *x\n", "f.yaml:2: aliases (*name) are not supported, write the value out"),
        ("a: &x [*x]\n", "f.yaml:1: aliases (*name) are not supported, write the value out"),
        ("1: a\n", "f.yaml:1: a key must be text, got 1"),
        ('a: 1\nb: "x\\0y"\n', r"f.yaml:2: texts must have no control characters, got 'x\x00y'"),
        ('a: ["\\e]0;x"]\n', r"f.yaml:1: texts must have no control characters, got '\x1b]0;x'"),
        ("? [a]\n: 1\n", "f.yaml:1: a key must be text, got a collection"),
        ("a: !!int abc\n", "f.yaml: not valid YAML: invalid literal for int() with base 10: 'abc'"),
        ("a: 1\n--- \nb: 2\n", "f.yaml:2: not valid YAML: but found another document"),
        ("[" * 10**5, "f.yaml: not valid YAML: it is nested too deeply"),
        (
            "a: \0\n",
            'f.yaml: not valid YAML: unacceptable character #x0000: special characters are not allowed in "<unicode '
            'string>", position 3',
        ),
        (
            "a: !!python/object:os.system x\n",
            "f.yaml:1: not valid YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'",
        ),
        (
            "a: \x01\n",
            "f.yaml: not valid YAML: unacceptable character #x0001: special characters are not allowed "
            'in "<unicode string>", position 3',
        ),
        ("[" * 5000, "f.yaml: not valid YAML: it is nested too deeply"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f.yaml")
    assert str(caught.value) == message


def test_lines_of_values() -> None:
    document = parse("a: 1\nb:\n  - x\n  - y\nc:\n  d: 2\n", "f.yaml")
    assert document.where("b", 1) == "f.yaml:4"
    assert document.where("c", "d") == "f.yaml:6"
    assert document.where("c", "unknown") == "f.yaml:5"
    assert parse("", "f.yaml").where("a") == "f.yaml"
