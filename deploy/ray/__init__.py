"""Ray Serve starts and scales engines: `serve run loragate.deploy.ray:app model=./my-model`.

Serve places, restarts and health-checks engines. Requests do not pass through Ray: engines register in the database,
and gateways reach them by gRPC as they reach any other (`docs/ray.md`).
"""

from loragate.deploy.ray.application import EngineOptions, app

__all__ = ["EngineOptions", "app"]
