"""What counts steps, for every transformation of the installed optax."""

from __future__ import annotations

import inspect
import itertools
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

PARAMS = {"w": jnp.linspace(-1, 1, 16).reshape(4, 4), "b": jnp.ones(4)}
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
            jax.eval_shape(found.init, PARAMS)
        except (TypeError, AttributeError):
            continue
        return found
    raise AssertionError(f"{function.__name__}: say in MADE how it is made")


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_every_transformation_is_known_or_refused(name: str) -> None:
    found = list(uncounted(jax.eval_shape(make(name).init, PARAMS)))
    assert found[:1] == [REFUSED[name]] if name in REFUSED else found == []


def test_every_class_that_is_known_is_one_of_optax() -> None:
    seen: set[str] = set()

    def look(state: Any) -> None:
        seen.add(type(state).__name__)
        for child in jax.tree.leaves(state, is_leaf=lambda child: child is not state):
            if child is not state:
                look(child)

    for name in TRANSFORMATIONS:
        look(jax.eval_shape(make(name).init, PARAMS))
    look(optax.rmsprop(0.1, bias_correction=True).init(PARAMS))
    look(optax.rmsprop(0.1, centered=True, bias_correction=True).init(PARAMS))
    look(optax.adamw(0.1, weight_decay=schedule).init(PARAMS))
    look(optax.add_decayed_weights(schedule).init(PARAMS))
    assert OPTAX.keys() - seen == {"InjectHyperparamsState"}  # of older versions


def trained(optimizer: optax.GradientTransformation, epochs: int, *, by_epoch: bool = True) -> list[Any]:
    """Parameters after each of K updates an epoch."""
    optimizer = optax.with_extra_args_support(optimizer)
    params, state, found = PARAMS, optimizer.init(PARAMS), [PARAMS]
    for number in range(epochs * K):
        rng = np.random.default_rng(number)
        gradients = {name: jnp.asarray(1 + rng.random(leaf.shape, np.float32)) for name, leaf in PARAMS.items()}
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
    versions = [step.start(PARAMS, {})]
    for number in range(epochs * K):
        gradients = jax.tree.map(jnp.ones_like, PARAMS)
        versions.append(step(versions[-1], Step(number + 1, number // K, gradients, 1.0, K)))
    return versions


def test_bias_is_corrected_for_every_update() -> None:
    """Adam divides its mean by what is in it: the steps of a constant gradient are all as long as its rate."""
    step = OptimizerStep(optax.adam(0.3, eps=0.0), PARAMS, by_epoch=True)
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
    step = OptimizerStep(optimizer, PARAMS, by_epoch=True)
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
    state = optimizer.init(PARAMS)
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
