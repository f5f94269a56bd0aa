"""The Ray Serve application: one deployment, whose replicas are engines."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from loragate.deploy.ray.engine_process import EngineProcess
from loragate.engine.fleet.scaling import engines_wanted

DEPLOYMENT = "loragate-engine"
_KILL_SECONDS = 15.0  # beyond the drain, until Serve kills a replica


class EngineOptions(BaseModel):
    """The arguments of `serve run`. All other settings are LORAGATE_* variables of Ray's nodes, secrets among them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(description="The base model: a folder or a hub's id.")
    host: str = Field("127.0.0.1", description='The address that gateways reach, or "node" for the node\'s own.')
    num_cpus: float = Field(1.0, gt=0, description="Processors of an engine.")
    num_gpus: float = Field(0.0, ge=0, description="GPUs of an engine.")
    min_engines: int = Field(1, ge=1)
    max_engines: int = Field(1, ge=1)
    max_queue_seconds: float = Field(1.0, gt=0, description="Engines are added while their queues are longer.")
    requests_per_engine: float = Field(
        16.0, gt=0, description="An engine is removed when the others can take its requests."
    )
    scale_up_seconds: float = Field(10.0, ge=0, description="How long queues must have been too long.")
    scale_down_seconds: float = Field(300.0, ge=0, description="How long one engine fewer must have been enough.")
    drain_seconds: float = Field(25.0, ge=0, description="How long an engine that is removed may finish its requests.")


class Engine:
    """A replica: it runs `loragate engine` and answers for its health. It takes no requests of tenants."""

    async def __init__(self, options: EngineOptions) -> None:
        replica = serve.get_replica_context().replica_id.unique_id
        threads = None if options.num_gpus else max(1, int(options.num_cpus))
        self._process = EngineProcess(options.model, f"ray-{replica}", options.host, options.drain_seconds, threads)
        await self._process.start()

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Say which engine this is."""
        return self._process.description()

    async def check_health(self) -> None:
        """Raise if the engine has ended or does not respond; Serve then replaces this replica."""
        await self._process.check()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the figures by which `QueuePolicy` decides."""
        return await self._process.load()

    async def __del__(self) -> None:
        """Drain the engine: its lease is given back first, so that it is sent no more requests."""
        await self._process.stop()


class QueuePolicy:
    """Serve's policy for the number of engines; Serve applies the bounds and the delays."""

    def __init__(self, max_queue_seconds: float, requests_per_engine: float) -> None:
        self._bounds = {"max_queue_seconds": max_queue_seconds, "requests_per_engine": requests_per_engine}

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        metrics = context.aggregated_metrics or {}
        queues, requests = (list(metrics.get(name, {}).values()) for name in ("queue_seconds", "requests"))
        if len(queues) < context.current_num_replicas:
            return context.target_num_replicas, {}  # an engine has not reported yet
        return engines_wanted(queues, requests, **self._bounds), {}


def app(options: EngineOptions) -> Application:
    """Return the application for `serve run`."""
    policy = AutoscalingPolicy(
        policy_function="loragate.deploy.ray.application:QueuePolicy",
        policy_kwargs={
            "max_queue_seconds": options.max_queue_seconds,
            "requests_per_engine": options.requests_per_engine,
        },
    )
    scaling = AutoscalingConfig(
        min_replicas=options.min_engines,
        max_replicas=max(options.min_engines, options.max_engines),
        upscale_delay_s=options.scale_up_seconds,
        downscale_delay_s=options.scale_down_seconds,
        metrics_interval_s=1.0,
        look_back_period_s=5.0,
        policy=policy,
    )
    deployment = serve.deployment(
        Engine,
        name=DEPLOYMENT,
        autoscaling_config=scaling,
        ray_actor_options={"num_cpus": options.num_cpus, "num_gpus": options.num_gpus},
        health_check_period_s=5.0,
        health_check_timeout_s=10.0,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=options.drain_seconds + _KILL_SECONDS,
    )
    return deployment.bind(options)
