from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dorylax.program.model.flax_nnx import Recorder, flat


class Twice(nnx.Module):
    """Calls one layer twice, and sows."""

    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.layer = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        first = self.layer(x)
        self.sow(nnx.Intermediate, "pair", {"a": first, "b": x})
        self.sow(nnx.Perturbation, "other", x)
        return self.layer(first)


def recorded(model: nnx.Module, x: Any) -> dict[str, Any]:
    copy = nnx.clone(model)
    recorder = Recorder(copy)
    with recorder.recording():
        copy(x)  # type: ignore[operator]
    return flat(recorder.found)


def test_several_values_of_a_name_are_numbered() -> None:
    x = jnp.ones((3, 2))
    found = recorded(Twice(rngs=nnx.Rngs(0)), x)
    assert list(found) == ["layer.0", "layer.1", "pair.a", "pair.b", "output"]
    np.testing.assert_array_equal(found["pair.a"], found["layer.0"])
    np.testing.assert_array_equal(found["output"], found["layer.1"])


def test_the_model_itself_and_its_class_are_left_alone() -> None:
    model, x = Twice(rngs=nnx.Rngs(0)), jnp.ones((3, 2))
    called = Twice.__call__
    recorder = Recorder(nnx.clone(model))
    elsewhere: list[bool] = []
    with recorder.recording():
        thread = threading.Thread(target=lambda: elsewhere.append("layer" in recorded(model.layer, x)))
        thread.start()
        thread.join()
        model.layer(x)
    assert recorder.found == {}
    assert elsewhere == [False]  # that layer is the model there, whose output is called so
    assert type(model) is Twice
    assert Twice.__call__ is called


def test_what_a_transformation_makes_of_a_module_is_not_recorded() -> None:
    class Outer(nnx.Module):
        def __init__(self, *, rngs: nnx.Rngs) -> None:
            self.layer = nnx.Linear(2, 2, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return nnx.remat(lambda layer, rows: layer(rows))(self.layer, x)

    found = jax.jit(lambda x: recorded(Outer(rngs=nnx.Rngs(0)), x))(jnp.ones((3, 2)))
    assert list(found) == ["output"]
