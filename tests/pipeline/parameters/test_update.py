from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from dorylax.pipeline.parameters.records import ServerState, Step
from dorylax.pipeline.parameters.update import OPTAX, OptimizerStep, uncounted, with_epoch

PARAMS = {"w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3), "b": np.zeros(3, np.float32)}
STEPS = 4
OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "adamw with a schedule": optax.adamw(optax.cosine_decay_schedule(0.1, STEPS), weight_decay=1e-2),
    "clipped adam": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(optax.linear_schedule(0.1, 0.0, 4))),
    "of the loss": optax.chain(optax.adam(0.01), optax.contrib.reduce_on_plateau(patience=1, factor=0.5)),
    "of the loss and gradient": optax.polyak_sgd(),
}


def gradients(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {name: rng.standard_normal(leaf.shape).astype(leaf.dtype) for name, leaf in PARAMS.items()}


def loss(step: int) -> float:
    return 1.5 if step > 1 else 2.25 - step


def assert_identical(first: Any, second: Any) -> None:
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        assert not getattr(one, "weak_type", False)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def served(optimizer: optax.GradientTransformation, factor: int = 1, steps: int = STEPS) -> ServerState:
    step = OptimizerStep(optimizer, PARAMS)
    state = step.start(PARAMS, {})
    for number in range(steps):
        state = step(state, update(number, factor))
    return state


def update(epoch: int, factor: int = 1, **more: Any) -> Step:
    """That which leads from version `epoch` to the next."""
    return Step(epoch + 1, epoch, gradients(epoch), loss(epoch), factor, **more)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_its_steps_are_those_of_optax(name: str) -> None:
    optimizer = optax.with_extra_args_support(OPTIMIZERS[name])
    params, state = PARAMS, optimizer.init(PARAMS)
    for number in range(STEPS):
        given = {"value": loss(number), "grad": gradients(number)}
        updates, state = optimizer.update(gradients(number), state, params, **given)
        params = optax.apply_updates(params, updates)
    found = served(OPTIMIZERS[name])
    assert found.version == STEPS
    same = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(same, (found.params, found.opt_state), (params, state))


@pytest.mark.parametrize("name", ["sgd", "clipped adam", "of the loss"])
def test_a_factor_scales_around_the_optimizer(name: str) -> None:
    chained = optax.chain(optax.scale(5), OPTIMIZERS[name], optax.scale(1 / 5))
    step = OptimizerStep(chained, PARAMS)
    expected = step.start(PARAMS, {})
    for number in range(STEPS):
        expected = step(expected, update(number)._replace(loss=5 * loss(number)))
    state = served(OPTIMIZERS[name], factor=5)
    assert_identical(state.params, expected.params)
    assert_identical(state.opt_state, expected.opt_state[1])


def test_an_optimizer_sees_loss_and_gradient_of_the_same_function() -> None:
    """Polyak's step is loss / |gradient|²; of K times the function it is a K-th as long, on a K-fold gradient."""
    expected = served(optax.polyak_sgd(max_learning_rate=1e9), steps=1).params
    moved = served(optax.polyak_sgd(max_learning_rate=1e9), factor=4, steps=1).params
    for name, before in PARAMS.items():
        np.testing.assert_allclose(4 * (moved[name] - before), expected[name] - before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtypes_are_kept(dtype: str) -> None:
    params = {"w": np.ones(3, jnp.dtype(dtype))}
    step = OptimizerStep(optax.adam(0.1), params)
    state = step.start(params, {})
    after = step(state, Step(1, 0, {"w": np.ones(3, jnp.dtype(dtype))}, 1.0, 3))
    for new, old in zip(jax.tree.leaves(after[1:]), jax.tree.leaves(state[1:]), strict=True):
        assert new.dtype == old.dtype
    assert (after.params["w"] < 1).all()


def test_the_state_before_stays_valid_and_shares_nothing_with_what_was_given() -> None:
    params = {"w": np.ones(64, np.float32)}
    step = OptimizerStep(optax.sgd(1.0), params)
    kept = {"mean": np.ones(64, np.float32)}
    state = step.start(params, kept)
    params["w"][:] = kept["mean"][:] = 5
    step(state, Step(1, 0, {"w": np.ones(64, np.float32)}, 0.0, 1))
    np.testing.assert_array_equal(state.params["w"], 1)
    np.testing.assert_array_equal(state.state["mean"], 1)


def test_versions_follow_one_another() -> None:
    step = OptimizerStep(optax.sgd(1.0), PARAMS)
    with pytest.raises(ValueError, match="update 2 does not follow version 0"):
        step(step.start(PARAMS, {}), update(1))


def test_the_state_of_the_model_advances_once_with_every_version() -> None:
    """From the newest state and the parameters before the update, by the statistics and the epoch of the update."""

    def advance(params: Any, state: Any, epoch: int, statistics: Any) -> Any:
        return {"mean": 0.5 * state["mean"] + statistics * params["w"][0, 0] + 100.0 * epoch}

    step = OptimizerStep(optax.sgd(0.1), PARAMS, advance)
    versions = [step.start(PARAMS, {"mean": np.float32(1.0)})]
    expected = [1.0]
    for number in range(STEPS):
        versions.append(step(versions[-1], update(number, statistics=np.float32(number + 2))))
        before = float(versions[-2].params["w"][0, 0])
        expected.append(0.5 * expected[-1] + (number + 2) * before + 100.0 * number)
    np.testing.assert_allclose([version.state["mean"] for version in versions], expected, rtol=1e-6)
    plain = OptimizerStep(optax.sgd(0.1), PARAMS)
    unchanged = plain.start(PARAMS, {"mean": np.float32(1.0)})
    assert plain(unchanged, update(0)).state is unchanged.state


def test_optimizers_of_local_functions_are_shipped() -> None:
    base = 0.5

    def schedule(count: Any) -> Any:
        return base / (1 + count)

    state = served(optax.sgd(schedule), steps=2)
    expected = {name: leaf - 0.5 * gradients(0)[name] - 0.25 * gradients(1)[name] for name, leaf in PARAMS.items()}
    np.testing.assert_allclose(state.params["w"], expected["w"], rtol=1e-5)


def test_an_optimizer_that_cannot_be_shipped_is_refused() -> None:
    lock = threading.Lock()

    def schedule(count: Any) -> Any:
        with lock:
            return 0.1

    with pytest.raises(ValueError, match="cannot be sent to parameter servers"):
        OptimizerStep(optax.sgd(schedule), PARAMS)


@pytest.mark.parametrize(
    "optimizer",
    [optax.lbfgs(), optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(max_backtracking_steps=3))],
    ids=["lbfgs", "backtracking"],
)
def test_line_searches_are_refused(optimizer: optax.GradientTransformation) -> None:
    with pytest.raises(ValueError, match="evaluates the loss at other parameters"):
        OptimizerStep(optimizer, PARAMS)


SQUARE = {"w": jnp.linspace(-1, 1, 16).reshape(4, 4), "b": jnp.ones(4)}
K = 3


def schedule(epoch: Any) -> Any:
    """0.1 in epochs 0 and 1, then nothing."""
    return jnp.where(epoch < 2, 0.1, 0.0)


def always(_: Any, **__: Any) -> Any:
    return jnp.bool_(True)


# How what cannot be made of nothing, or of a learning rate alone, is made.
MADE: dict[str, Callable[[], Any]] = {
    "add_noise": lambda: optax.add_noise(0.1, 0.5, key=0),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.sgd(0.1), 2),
    "chain": lambda: optax.chain(optax.sgd(schedule)),
    "conditionally_mask": lambda: optax.conditionally_mask(optax.adam(0.1), always),
    "conditionally_transform": lambda: optax.conditionally_transform(optax.adam(0.1), always),
    "differentially_private_aggregate": lambda: contrib.differentially_private_aggregate(1.0, 0.1, key=0),
    "ema": lambda: optax.ema(0.9),
    "flatten": lambda: optax.flatten(optax.adam(0.1)),
    "freeze": lambda: optax.freeze({"w": True, "b": False}),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=schedule),
    "lookahead": lambda: optax.lookahead(optax.sgd(0.1), 5, 0.5),
    "masked": lambda: optax.masked(optax.adam(0.1), {"w": True, "b": False}),
    "measure_with_ema": lambda: optax.monitor({"norm": optax.measure_with_ema(optax.tree.norm, 0.9)}),
    "monitor": lambda: optax.monitor({"norm": optax.tree.norm}),
    "multi_transform": lambda: optax.multi_transform({"a": optax.adam(0.1)}, {"w": "a", "b": "a"}),
    "named_chain": lambda: optax.named_chain(("first", optax.sgd(schedule))),
    "noisy_sgd": lambda: optax.noisy_sgd(0.1, key=0),
    "partition": lambda: optax.partition({"a": optax.adam(0.1)}, {"w": "a", "b": "a"}),
    "sam": lambda: contrib.sam(optax.sgd(0.1), optax.sgd(0.1)),
    "scale_by_schedule": lambda: optax.scale_by_schedule(schedule),
    "schedule_free": lambda: contrib.schedule_free(optax.sgd(schedule), learning_rate=schedule),
    "selective_transform": lambda: optax.selective_transform(optax.adam(0.1), freeze_mask={"w": True, "b": False}),
    "snapshot": lambda: optax.snapshot("norm", optax.tree.norm),
    "stateless": lambda: optax.stateless(lambda updates, params: updates),
    "stateless_with_tree_map": lambda: optax.stateless_with_tree_map(lambda update, param: update),
    "MultiSteps": lambda: optax.MultiSteps(optax.sgd(0.1), 2).gradient_transformation(),
}
LEFT_OUT = {"dpsgd", "inject_stateful_hyperparams", "optimistic_adam"}
"""They warn that they, or what they need, are deprecated, and are what others here are."""
REFUSED = {
    "MultiSteps": "MultiStepsState.mini_step",
    "add_noise": "AddNoiseState.count",
    "apply_every": "ApplyEvery.count",
    "apply_if_finite": "ApplyIfFiniteState.notfinite_count",
    "dadapt_adamw": "DAdaptAdamWState.count",
    "galore": "GaLoreState.count",
    "lbfgs": "ScaleByLBFGSState.count",
    "lookahead": "LookaheadState.steps_since_sync",
    "madgrad": "MadgradState.count",
    "mechanize": "MechanicState.count",
    "momo": "MomoState.count",
    "momo_adam": "MomoAdamState.count",
    "noisy_sgd": "AddNoiseState.count",
    "prodigy": "ProdigyState.count",
    "reduce_on_plateau": "ReduceLROnPlateauState.plateau_count",
    "sam": "SAMState.steps_since_sync",
    "scale_by_backtracking_linesearch": "BacktrackingLinesearchInfo.num_linesearch_steps",
    "scale_by_galore": "GaLoreState.count",
    "scale_by_lbfgs": "ScaleByLBFGSState.count",
    "scale_by_madgrad": "MadgradState.count",
    "scale_by_simplified_ademamix": "ScaleBySimplifiedAdEMAMixState.t",
    "scale_by_zoom_linesearch": "ZoomLinesearchInfo.num_linesearch_steps",
    "schedule_free": "ScheduleFreeState.step_count",
    "schedule_free_adamw": "ScheduleFreeState.step_count",
    "schedule_free_sgd": "ScheduleFreeState.step_count",
    "simplified_ademamix": "ScaleBySimplifiedAdEMAMixState.t",
    "sophia": "SophiaState.count",
}


def public() -> Iterator[tuple[str, Any]]:
    """Every function of optax that gives a transformation."""
    for module in (optax, contrib):
        for name in dir(module):
            made = getattr(module, name)
            if name.startswith("_") or name in LEFT_OUT or not inspect.isfunction(made):
                continue
            if name in MADE or "GradientTransformation" in str(inspect.signature(made).return_annotation):
                yield name, made
    yield "MultiSteps", optax.MultiSteps


TRANSFORMATIONS = dict(public())


def make(name: str, rate: Any = schedule) -> optax.GradientTransformation:
    """With a schedule of the learning rate where there is one."""
    function = TRANSFORMATIONS[name]
    if name in MADE:
        made = MADE[name]()
    elif takes_schedule(name):
        # After the rate, momentum goes on where the rate is 0.
        made = function(rate, momentum=0.0) if name == "lars" else function(learning_rate=rate)
    else:
        made = _made(function)
    assert isinstance(made, optax.GradientTransformation)
    return made


def takes_schedule(name: str) -> bool:
    """Whether the learning rate may be a schedule."""
    rate = inspect.signature(TRANSFORMATIONS[name]).parameters.get("learning_rate")
    return name not in MADE and rate is not None and "Callable" in str(rate.annotation)


def _made(function: Callable[..., Any]) -> Any:
    for arguments in ((), (0.1,), (optax.sgd(schedule),), (0.1, 0.1)):
        try:
            found = function(*arguments)
            jax.eval_shape(found.init, SQUARE)
        except (TypeError, AttributeError):
            continue
        return found
    raise AssertionError(f"{function.__name__}: say in MADE how it is made")


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_every_transformation_is_known_or_refused(name: str) -> None:
    found = list(uncounted(jax.eval_shape(make(name).init, SQUARE)))
    assert found[:1] == [REFUSED[name]] if name in REFUSED else found == []


def test_every_class_that_is_known_is_one_of_optax() -> None:
    seen: set[str] = set()

    def look(state: Any) -> None:
        seen.add(type(state).__name__)
        for child in jax.tree.leaves(state, is_leaf=lambda child: child is not state):
            if child is not state:
                look(child)

    for name in TRANSFORMATIONS:
        look(jax.eval_shape(make(name).init, SQUARE))
    look(optax.rmsprop(0.1, bias_correction=True).init(SQUARE))
    look(optax.rmsprop(0.1, centered=True, bias_correction=True).init(SQUARE))
    look(optax.adamw(0.1, weight_decay=schedule).init(SQUARE))
    look(optax.add_decayed_weights(schedule).init(SQUARE))
    assert OPTAX.keys() - seen == {"InjectHyperparamsState"}  # of older versions


def trained(optimizer: optax.GradientTransformation, epochs: int, *, by_epoch: bool = True) -> list[Any]:
    """Parameters after each of K updates an epoch."""
    optimizer = optax.with_extra_args_support(optimizer)
    params, state, found = SQUARE, optimizer.init(SQUARE), [SQUARE]
    for number in range(epochs * K):
        rng = np.random.default_rng(number)
        gradients = {name: jnp.asarray(1 + rng.random(leaf.shape, np.float32)) for name, leaf in SQUARE.items()}
        state = with_epoch(state, jnp.int32(number // K)) if by_epoch else state
        updates, state = optimizer.update(gradients, state, params, value=1.0)
        params = optax.apply_updates(params, updates)
        found.append(params)
    return found


SCHEDULED = [name for name in TRANSFORMATIONS if takes_schedule(name) and name not in REFUSED]


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_is_of_epochs(name: str) -> None:
    """Whatever else the optimizer counts."""
    moved = [bool(jnp.any(one["w"] != other["w"])) for one, other in itertools.pairwise(trained(make(name), 4))]
    assert moved[1:] == [True] * (2 * K - 1) + [False] * (2 * K)


@pytest.mark.parametrize("name", SCHEDULED)
def test_moments_count_their_updates(name: str) -> None:
    """With a constant rate an optimizer does not notice that schedules are of epochs."""
    found, expected = (trained(make(name, lambda _: 0.1), 2, by_epoch=flag)[-1] for flag in (True, False))
    np.testing.assert_array_equal(found["w"], expected["w"])


def stepped(step: OptimizerStep, epochs: int) -> list[ServerState]:
    """The versions of K updates an epoch with gradients of ones."""
    versions = [step.start(SQUARE, {})]
    for number in range(epochs * K):
        gradients = jax.tree.map(jnp.ones_like, SQUARE)
        versions.append(step(versions[-1], Step(number + 1, number // K, gradients, 1.0, K)))
    return versions


def test_bias_is_corrected_for_every_update() -> None:
    """Adam divides its mean by what is in it: the steps of a constant gradient are all as long as its rate."""
    step = OptimizerStep(optax.adam(0.3, eps=0.0), SQUARE, by_epoch=True)
    for one, other in itertools.pairwise(stepped(step, 2)):
        np.testing.assert_allclose(one.params["w"] - other.params["w"], 0.3 / K, rtol=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (optax.sgd(schedule), lambda state: None),
        (optax.inject_hyperparams(optax.sgd)(learning_rate=schedule), lambda state: state.hyperparams["learning_rate"]),
    ],
    ids=["schedule", "injected"],
)
def test_counts_stand_at_the_epoch(optimizer: Any, rate: Callable[[Any], Any]) -> None:
    step = OptimizerStep(optimizer, SQUARE, by_epoch=True)
    versions = stepped(step, 3)
    for one, other in itertools.pairwise(versions):
        assert bool((one.params["w"] != other.params["w"]).any()) == (one.version < 2 * K)
    for version in versions[1:]:
        epoch = (version.version - 1) // K
        shown = rate(version.opt_state)
        assert shown is None or float(shown) == float(schedule(epoch))


def test_an_epoch_reaches_every_schedule_and_nothing_else() -> None:
    optimizer = optax.chain(
        optax.masked(optax.adamw(schedule, weight_decay=schedule), {"w": True, "b": False}),
        optax.add_decayed_weights(schedule),
        optax.conditionally_transform(contrib.ademamix(0.1, b3=schedule), always),
    )
    state = optimizer.init(SQUARE)
    found = {
        jax.tree_util.keystr(path): int(leaf)
        for path, leaf in jax.tree.leaves_with_path(with_epoch(state, 7))
        if leaf.shape == ()
    }
    assert sorted(found.values()) == [0, 0, 7, 7, 7, 7, 7], found
    assert all(value == 7 for path, value in found.items() if path.endswith(("step", "count_m2")))
    assert jax.tree.structure(with_epoch(state, 7)) == jax.tree.structure(state)


@pytest.mark.parametrize(
    ("state", "named"),
    [(jnp.int32(0), "its state"), ({"seen": jnp.int32(0)}, "dict.seen"), ((jnp.zeros(3), jnp.uint8(0)), "tuple.1")],
)
def test_what_is_not_of_optax_is_refused_by_its_place(state: Any, named: str) -> None:
    assert list(uncounted(state)) == [named]


def test_a_class_that_is_only_called_like_one_of_optax_is_not_known() -> None:
    class ScaleByScheduleState(tuple):
        pass

    jax.tree_util.register_pytree_node(
        ScaleByScheduleState, lambda x: (tuple(x), None), lambda _, x: ScaleByScheduleState(x)
    )
    assert list(uncounted(ScaleByScheduleState([jnp.int32(0)])))


def test_arrays_and_keys_are_no_counts() -> None:
    state = {"ids": jnp.zeros(3, jnp.int32), "key": jax.random.key(0), "first": jnp.bool_(True), "rate": jnp.float32(1)}
    assert not list(uncounted(state))
