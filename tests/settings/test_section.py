"""A section of settings: what is refused in which words, and what follows from one field."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import AfterValidator, Field, InstanceOf, ValidationError, model_validator

from dorylax.cli.options import collect
from dorylax.config import schema
from dorylax.config.files import overrides_from_yaml
from dorylax.settings.errors import ConfigError
from dorylax.settings.section import Count, Fraction, PathText, Positive, Section, Text


def _even(value: int) -> int:
    if value % 2:
        raise ValueError(f"must be even, got {value}")
    return value


class Oven(Section):
    """How bread is baked."""

    section: ClassVar[str] = "oven"

    loaves: Count = Field(default=2, description="at a time")
    heat: Literal["low", "high"] = Field(default="low", description="of the oven")
    share: Fraction = Field(default=0.5, description="of rye")
    minutes: Positive | None = Field(default=None, description="in the oven; null: until done")
    steam: bool = Field(default=False, description="at the beginning")
    flour: Text = Field(default="rye", description="its name")
    trays: Annotated[int, Field(ge=1, le=4)] = Field(default=1, description="above each other")
    eggs: Annotated[int, AfterValidator(_even)] = Field(default=0, description="in the dough")
    recipe: PathText | None = Field(default=None, description="the file that it is in")

    @model_validator(mode="after")
    def _check(self) -> Oven:
        if self.minutes is None and self.steam:
            object.__setattr__(self, "minutes", 50.0)
        if self.heat == "high" and self.steam:
            raise ConfigError.of("oven.steam", "= true needs oven.heat=low, got high: change one of them")
        return self


class Kitchen(Section):
    """A section that holds another."""

    oven: InstanceOf[Oven] = Oven()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loaves": 0}, "oven.loaves must be ≥ 1, got 0"),
        ({"loaves": True}, "oven.loaves must be a whole number ≥ 1, got true"),
        ({"loaves": "2"}, "oven.loaves must be a whole number ≥ 1, got '2'"),
        ({"loaves": 2.0}, "oven.loaves must be a whole number ≥ 1, got 2.0"),
        ({"loaves": None}, "oven.loaves must be a whole number ≥ 1, got null"),
        ({"heat": "hihg"}, "oven.heat must be one of low, high, got 'hihg' (did you mean high?)"),
        ({"heat": 3}, "oven.heat must be one of low, high, got 3"),
        ({"heat": None}, "oven.heat must be one of low, high, got null"),
        ({"share": 1}, "oven.share must be ≥ 0 and < 1, got 1"),
        ({"share": float("nan")}, "oven.share must be finite, got nan"),
        ({"share": "half"}, "oven.share must be a number ≥ 0 and < 1, got 'half'"),
        ({"minutes": -1}, "oven.minutes must be > 0, got -1"),
        ({"steam": 1}, "oven.steam must be true or false, got 1"),
        ({"flour": ""}, "oven.flour must not be empty"),
        ({"flour": 7}, "oven.flour must be text, got 7"),
        ({"trays": 5}, "oven.trays must be in 1 … 4, got 5"),
        ({"trays": "1"}, "oven.trays must be a whole number in 1 … 4, got '1'"),
        ({"eggs": 3}, "oven.eggs must be even, got 3"),
        ({"recipe": ""}, "oven.recipe must not be empty"),
        ({"recipe": 3}, "oven.recipe must be text, got 3"),
        ({"heat": "high", "steam": True}, "oven.steam = true needs oven.heat=low, got high: change one of them"),
        ({"loafs": 3}, "unknown key 'oven.loafs': did you mean oven.loaves?"),
    ],
)
def test_each_refusal_is_one_line_that_names_the_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Oven(**given)
    assert str(caught.value) == message
    assert caught.value.key == message.removeprefix("unknown key ").partition(" ")[0].strip("':")
    ((option, value), *others) = given.items()
    if not others and option in Oven.options():
        with pytest.raises(ConfigError) as alone:
            Oven.check(option, value)
        assert (str(alone.value), alone.value.key) == (message, caught.value.key)


def test_a_value_alone_is_not_held_against_others() -> None:
    Oven.check("steam", True)
    Oven.check("minutes", None)


def test_a_section_inside_another_is_given_as_one() -> None:
    assert Kitchen(oven=Oven(loaves=3)).oven.loaves == 3
    assert list(Kitchen.options()) == []
    with pytest.raises(TypeError, match=r"^oven must be a .*\.Oven, got int$"):
        Kitchen(oven=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^oven must be a .*\.Oven, got dict$"):
        Kitchen(oven={"loaves": 3})  # type: ignore[arg-type]


def test_equal_settings_are_equal_and_frozen() -> None:
    oven = Oven(share=0, recipe=Path("bread") / "rye")
    assert (type(oven.share), oven.recipe) == (float, os.path.join("bread", "rye"))
    again = Oven(**oven.to_dict())
    assert again == oven != Oven()
    assert hash(again) == hash(oven)
    assert pickle.loads(pickle.dumps(oven)) == oven == copy.deepcopy(oven)
    with pytest.raises(ValidationError):
        oven.share = 0.25  # type: ignore[misc]


def test_a_copy_with_changes_is_checked_and_filled_in_anew() -> None:
    oven = Oven(steam=True, loaves=4)
    assert oven.minutes == 50.0
    assert oven.model_copy(update={"steam": False}) == Oven(loaves=4)
    assert oven.model_copy() == oven
    with pytest.raises(ConfigError, match=r"oven\.steam = true needs oven\.heat=low"):
        oven.model_copy(update={"heat": "high"})
    with pytest.raises(ConfigError, match=r"unknown key 'oven\.loafs'"):
        oven.model_copy(update={"loafs": 1})
    if sys.version_info >= (3, 13):
        with pytest.raises(ConfigError, match=r"oven\.loaves must be ≥ 1"):
            copy.replace(oven, loaves=0)


def test_help_lists_the_settings() -> None:
    assert Oven.__doc__ is not None
    lines = [line.strip() for line in Oven.__doc__.splitlines()]
    assert lines[0] == "How bread is baked."
    assert "loaves: at a time (a whole number ≥ 1)." in lines
    assert "minutes: in the oven; null: until done (a number > 0 or None)." in lines


def test_a_setting_is_added_as_one_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is then in Python, in files and on the command line; docs/settings.md is written anew by docs/reference.py."""

    class Longer(schema.TrainConfig):
        """As it is, and one setting more."""

        warmup: Count = Field(default=5, description="epochs in which the step size grows")

    monkeypatch.setitem(schema.SECTIONS, "train", Longer)
    monkeypatch.setitem(schema.KEYS, "train.warmup", Longer.options()["warmup"])
    assert Longer(warmup=3).to_dict()["warmup"] == 3
    assert (
        overrides_from_yaml("train: {warmup: 3}", "f").values
        == {"train.warmup": 3}
        == collect(None, {}, ["train.warmup=3"]).values
    )
    with pytest.raises(ConfigError, match=r"^f:2: train\.warmup must be ≥ 1, got 0$"):
        overrides_from_yaml("train:\n  warmup: 0\n", "f")
    with pytest.raises(ConfigError, match=r"^unknown key 'train\.warmpu': did you mean train\.warmup\?$"):
        collect(None, {}, ["train.warmpu=3"])


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("loaves: 3\nshare: 2\n", {}, "oven.yaml:2: oven.share must be ≥ 0 and < 1, got 2"),
        ("loaves: 3\nlaoves: 2\n", {}, "oven.yaml:2: unknown key 'oven.laoves': did you mean oven.loaves?"),
        ("loaves: 3\n", {"loaves": 0}, "oven.loaves must be ≥ 1, got 0"),
        ("- loaves\n", {}, "oven.yaml:1: must hold settings such as loaves, got ['loaves']"),
        ("loaves: 3\nloaves: 4\n", {}, "oven.yaml:2: loaves is given twice (first on line 1)"),
    ],
)
def test_a_wrong_setting_of_a_file_has_its_line(
    text: str, given: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("oven.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Oven.load(Path("oven.yaml"), given)
    assert str(caught.value) == message


def test_given_settings_win_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "oven.yaml").write_text("loaves: 3\nsteam: true\n")
    assert Oven.load(tmp_path / "oven.yaml", {"loaves": 4}) == Oven(loaves=4, steam=True)
    (tmp_path / "oven.yaml").write_text("# nothing\n")
    assert Oven.load(tmp_path / "oven.yaml", {}) == Oven() == Oven.load(None, {})


def test_what_is_not_as_by_default_is_shown() -> None:
    assert repr(Oven()) == "Oven()"
    assert repr(Oven(loaves=3, minutes=2.5)) == "Oven(loaves=3, minutes=2.5)"
