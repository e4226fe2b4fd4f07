"""`HostsPipeline`: the counterpart of `Pipeline` for servers in other processes. This process holds no graph."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Literal, final

import optax

from dorylax.clock import RealClock
from dorylax.graph.dataset import Dataset
from dorylax.graph.sharded_data import ShardedData, shapes_of
from dorylax.jax_internals import thread_settings
from dorylax.machine import cores
from dorylax.metrics.evaluation import RowSums
from dorylax.net.keys import RunKeys
from dorylax.net.sockets import make_socket_folder
from dorylax.own_folder import OwnFolder
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.evaluation import check_outputs
from dorylax.pipeline.hosts.launcher import Launcher
from dorylax.pipeline.hosts.processes import ProcessLauncher
from dorylax.pipeline.hosts.ray import RayLauncher
from dorylax.pipeline.hosts.run import HostsRun
from dorylax.pipeline.hosts.spec import RunSpec
from dorylax.pipeline.prepare import Job, Prepared, layout_for, prepare, prepared_for, prices_for
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.resources import cores_of_host, cpus_of_workers, on_cluster
from dorylax.pipeline.saved import InitialState, Saved
from dorylax.pipeline.shard_writing import write_shards
from dorylax.pipeline.stages import stage_sizes
from dorylax.program.model.base import ModelParts, Tree
from dorylax.program.model.loss import RowFunction, cross_entropy
from dorylax.ray_cluster.connection import load_ray, node_address
from dorylax.serverless.backends.environment import jax_settings
from dorylax.serverless.config import TensorConfig
from dorylax.settings.errors import ConfigError


@final
@dataclasses.dataclass(frozen=True, eq=False)
class HostsPipeline(Job):
    """Immutable description of a training run on hosts.

    Attributes:
        prepared: Plan and its functions.
        evaluation: Plan of evaluations; None: hosts do not evaluate.
        sums: Reported sums of evaluations.
        data: Data set, or the location of its shards.
    """

    prepared: Prepared
    evaluation: Prepared | None
    sums: RowSums | None
    data: Dataset | ShardedData

    @classmethod
    def of(
        cls,
        parts: ModelParts,
        data: Dataset | ShardedData,
        optimizer: optax.GradientTransformation,
        config: PipelineConfig,
        *,
        loss: RowFunction = cross_entropy,
        sums: RowSums | None = None,
        seed: int = 0,
    ) -> HostsPipeline:
        """Trace and split the model, and check the settings, without starting a process.

        Args:
            parts: The model.
            data: Data set, whose shards are written for each run, or the location of shards.
            optimizer: Any optax transformation that does not evaluate the loss itself.
            config: Settings of the pipeline.
            loss: `(output, labels) -> [V]`.
            sums: Reported sums of evaluations; None: hosts do not evaluate.
            seed: Seed of dropout and of the partition.

        Raises:
            ConfigError: The settings contradict the data or the optimizer. The message names the key.
            SplitError: The model cannot be split, or not be evaluated row by row.
        """
        shapes = shapes_of(data)
        prepared = prepared_for(config, parts, shapes, optimizer, loss)
        evaluation = None
        if sums is not None:
            evaluation = prepare(parts, prepared.plan.program.traced.spec, config.passes, loss=None, workers=False)
            check_outputs(evaluation.plan)
        if isinstance(data, ShardedData):
            check_shards(data, config, reads_ids=reads_edge_ids(prepared, evaluation))
        return cls(
            prepared=prepared,
            evaluation=evaluation,
            parts=parts,
            loss=loss,
            sums=sums,
            data=data,
            optimizer=optimizer,
            config=config,
            prices=prices_for(config),
            seed=seed,
        )

    def of_outputs(self) -> HostsPipeline:
        """Return a variant for evaluations only: one parameter server and no workers."""
        config = self.config
        fewer = {
            "parameter_servers": 1,
            "num_hosts": None if config.num_hosts is None else min(config.num_hosts, config.servers),
            "tensor": TensorConfig(),
            "cluster": PipelineConfig.model_fields["cluster"].default,
        }
        return dataclasses.replace(self, config=config.model_copy(update=fewer), prices=None)

    @property
    def passes(self) -> tuple[str, ...]:
        """Passes that were applied to the program."""
        return self.prepared.plan.program.passes

    def start(
        self,
        params: Tree,
        opt_state: Tree,
        state: Tree,
        *,
        epoch: int = 0,
        saved: Saved | None = None,
        trace: Trace | None = None,
    ) -> HostsRun:
        """Start the hosts and their computations before the first epoch; arguments as for `Pipeline.start`.

        Raises:
            HostError: A host could not be started.
            ConfigError: The graph cannot be divided as configured, or the Ray cluster does not exist.
            OSError: Shards cannot be written.
        """
        with contextlib.ExitStack() as unfinished:
            config = unfinished.enter_context(on_cluster(self.config))
            launcher, transport, host = self._place(config)
            sockets = None
            if transport == "ipc":
                folder = make_socket_folder()
                unfinished.callback(folder.remove)
                sockets = folder.path
            spec = dataclasses.replace(
                self.spec(config, unfinished), transport=transport, host=host, sockets=sockets, traces=trace is not None
            )
            clock = unfinished.enter_context(RealClock(thread_settings()))
            return HostsRun(
                spec,
                InitialState(params, opt_state, state, saved, epoch),
                launcher,
                clock=clock,
                make_transport=lambda: spec.open_transport(clock),
                trace=trace,
                config=config,
                prices=self.prices,
                epoch=epoch,
                cleanup=unfinished.pop_all(),
            )

    def spec(self, config: PipelineConfig, cleanup: contextlib.ExitStack) -> RunSpec:
        """Return the settings shared by all hosts of a run, and write missing shards.

        Args:
            config: Settings of the pipeline, completed by the cluster.
            cleanup: Receives callbacks that remove the written shards.

        Raises:
            ConfigError: The graph cannot be divided as configured.
            OSError: Shards cannot be written.
        """
        shards = self._shards(cleanup)
        sizes = stage_sizes(shards.summary.shards, config.edge_chunk)
        return RunSpec(
            parts=self.parts,
            loss=self.loss,
            spec=self.prepared.plan.program.traced.spec,
            optimizer=self.optimizer,
            config=config,
            prices=self.prices,
            seed=self.seed,
            shards=shards,
            sums=self.sums,
            sizes=(sizes.vertices, sizes.edges),
            jax=jax_settings(),
            keys=RunKeys.make(),
            log_level=logging.getLogger("dorylax").getEffectiveLevel(),
        )

    @staticmethod
    def _place(config: PipelineConfig) -> tuple[Launcher, Literal["ipc", "tcp"], str]:
        """Return the launcher, the kind of transport, and for tcp the address of this process."""
        if config.hosts != "ray":
            return ProcessLauncher(cores_of_host(config, cores())), "ipc", ""
        return RayLauncher(load_ray(), config.ray, left=cpus_of_workers(config)), "tcp", node_address()

    def _shards(self, cleanup: contextlib.ExitStack) -> ShardedData:
        """Return the existing shards, or write shards into a folder of this run."""
        if isinstance(self.data, ShardedData):
            return self.data
        layout = layout_for(self.data.graph, self.config, self.seed)
        folder = OwnFolder(Path(tempfile.mkdtemp(prefix="dorylax-shards-")))
        cleanup.callback(folder.remove)
        return write_shards(
            folder.path, self.data, layout, ids=reads_edge_ids(self.prepared, self.evaluation), digests=False
        )


def check_shards(data: ShardedData, config: PipelineConfig, *, reads_ids: bool) -> None:
    """Check that shards fit a run.

    Args:
        data: Location of the shards.
        config: Settings of the run.
        reads_ids: Whether the model reads edge ids.

    Raises:
        ConfigError: The shards have other numbers of servers or intervals, or lack edge ids. The message names the key.
    """
    for key, wanted, found in (
        ("servers", config.servers, data.num_servers),
        ("intervals", config.intervals, data.summary.intervals),
    ):
        if wanted != found:
            raise ConfigError.of(
                f"pipeline.{key}",
                f"= {wanted}, but the shards in {data.folder} are for {found}: give {found}, or make others "
                f"(dorylax partition --{key} {wanted})",
            )
    if reads_ids and not data.summary.edge_ids:
        raise ConfigError.of(
            "pipeline.partition",
            f"= {data.folder} has shards without edge ids, which the model reads (it draws or takes values per edge): make "
            "them again (dorylax partition --edge-ids)",
        )


def reads_edge_ids(*plans: Prepared | None) -> bool:
    """Return whether a plan reads ids or positions of edges."""
    return any(one.plan.program.reads_edges("ids", "places") for one in plans if one is not None)
