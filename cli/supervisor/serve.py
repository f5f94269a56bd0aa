"""`loragate serve`, from parsed settings to an exit status."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from loragate.cli.refusal import BAD_SETTING, FAILED, Refusal
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor import runtime_file, shared_metrics
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.engine_socket import engine_socket
from loragate.cli.supervisor.lock import exclusive
from loragate.cli.supervisor.notifications import Announcements
from loragate.cli.supervisor.panel import panel_listener
from loragate.cli.supervisor.ports import address_of, hold, listen, target_of, url_of
from loragate.cli.supervisor.preparation import make_data_dir
from loragate.cli.supervisor.runtime_file import Addresses
from loragate.cli.supervisor.stop_signals import stop_orders
from loragate.cli.supervisor.supervisor import Supervisor
from loragate.engine.runtime.log_format import log_to_stderr


async def serve(settings: Settings, make_programs: Callable[..., Programs] = Programs) -> int:
    """Runs until told to stop; the status is 0 unless a second order cut the stop short. Raises Refusal."""
    check_combination(settings)
    log_to_stderr(settings.log_format)
    make_data_dir(settings)
    tell = Announcements(settings.log_format)
    with stop_orders() as orders, exclusive(settings.data_dir):
        runtime_file.remove(settings.data_dir)
        shared_metrics.begin(settings)
        with (
            closing(listen(settings.host, settings.port)) as listener,
            closing(hold(settings.host, settings.grpc_port)) as held,
            panel_listener(settings, tell.event) as panel,
            _engine_target(settings) as target,
        ):
            panel_descriptor = None if panel is None else panel.fileno()
            programs = make_programs(settings, target, listener.fileno(), address_of(held), panel_descriptor)
            where = Addresses(url_of(listener), target_of(held), None if panel is None else url_of(panel))
            try:
                await Supervisor(settings, programs, where, orders, tell).run()
            finally:
                runtime_file.remove(settings.data_dir)
    return FAILED if orders.at_once.is_set() else 0


def check_combination(settings: Settings) -> None:
    """What no single setting can say. Raises Refusal."""
    if settings.demo and settings.model is not None:
        raise Refusal("--demo brings its own model: give --demo or --model (LORAGATE_MODEL), not both", BAD_SETTING)
    if not settings.demo and settings.model is None:
        raise Refusal(
            "no model to serve: give --model DIR_OR_HUB_ID (LORAGATE_MODEL), or --demo to try loragate with a tiny "
            "model that is trained on the spot",
            BAD_SETTING,
        )
    sharers = settings.workers * settings.replicas
    if sharers > 1 and settings.redis_url is None:
        raise Refusal(
            f"{sharers} gateway workers (LORAGATE_WORKERS times LORAGATE_REPLICAS) need a Redis to share their limits: "
            "set LORAGATE_REDIS_URL, or use one worker",
            BAD_SETTING,
        )
    if settings.replicas > 1 and settings.secret_key is None:
        raise Refusal(
            f"{settings.replicas} replicas (LORAGATE_REPLICAS) need one secret: set LORAGATE_SECRET_KEY alike for all",
            BAD_SETTING,
        )
    if settings.engine_target is not None:
        raise Refusal(
            "LORAGATE_ENGINE_TARGET is for `loragate gateway` beside an engine started elsewhere; "
            "`loragate serve` starts its own",
            BAD_SETTING,
        )


@contextmanager
def _engine_target(settings: Settings) -> Iterator[str]:
    given = settings.engine.listen
    if given is None:
        with engine_socket() as target:
            yield target
    elif given.endswith(":0"):
        raise Refusal("LORAGATE_ENGINE__LISTEN needs a port number, so that the gateway finds the engine", BAD_SETTING)
    else:
        yield given
