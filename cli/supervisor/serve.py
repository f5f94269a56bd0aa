"""`loragate serve`: from settings to an exit status."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from loragate.cli.data_dir import runtime_file
from loragate.cli.data_dir.client_certificate import with_client_certificate
from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.data_dir.preparation import check_replicas, make_data_dir, with_secret_keys
from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.errors import BAD_SETTING, FAILED, CliError
from loragate.cli.settings.model import Settings
from loragate.cli.standalone.ports import address_of, listen, reserve, target_of, url_of
from loragate.cli.standalone.tls import check_tls, warn_about_tls
from loragate.cli.supervisor import shared_metrics
from loragate.cli.supervisor.child_commands import Programs
from loragate.cli.supervisor.notifications import Notifications
from loragate.cli.supervisor.panel import panel_listener
from loragate.cli.supervisor.stop_signals import stop_signals
from loragate.cli.supervisor.supervisor import Supervisor, WhenReady
from loragate.engine.fleet.addresses import EngineAddress, check_addresses
from loragate.engine.link_security import is_local
from loragate.engine.runtime.log_format import log_to_stderr
from loragate.gateway.connections.tls import ClientTls


async def serve(
    settings: Settings, make_programs: Callable[..., Programs] = Programs, *, when_ready: WhenReady | None = None
) -> int:
    """Run the server until a signal stops it. The status is 0 unless a second signal cut the shutdown short.

    `when_ready` is called once with the server's addresses; an error of it stops the server. Raise CliError.
    """
    check_combination(settings)
    check_tls(settings)
    log_to_stderr(settings.log_format)
    warn_about_tls(settings)
    make_data_dir(settings)
    notifications = Notifications(settings.log_format)
    with stop_signals() as signals, lock_data_dir(settings.data_dir):
        settings = with_client_certificate(with_secret_keys(settings))
        runtime_file.remove(settings.data_dir)
        shared_metrics.begin(settings)
        with (
            closing(listen(settings.host, settings.port)) as listener,
            closing(reserve(settings.host, settings.grpc_port)) as held,
            panel_listener(settings, notifications.event) as panel,
            _engine_targets(settings) as (target, more_engines),
        ):
            panel_descriptor = None if panel is None else panel.fileno()
            programs = make_programs(
                settings, target, listener.fileno(), address_of(held), panel_descriptor, more_engines
            )
            where = Addresses(
                url_of(listener, settings.tls_cert),
                target_of(held),
                None if panel is None else url_of(panel, settings.tls_cert),
                None if settings.tls is None else ClientTls(settings.tls_cert, settings.client_cert),
            )
            try:
                await Supervisor(settings, programs, where, signals, notifications, when_ready).run()
            finally:
                runtime_file.remove(settings.data_dir)
    return FAILED if signals.immediate.is_set() else 0


def check_combination(settings: Settings) -> None:
    """Raise CliError for settings that do not fit together."""
    if settings.demo and settings.model is not None:
        raise CliError(
            "--demo comes with its own model: give --demo or --model (LORAGATE_MODEL), not both", BAD_SETTING
        )
    if not settings.demo and settings.model is None:
        raise CliError(
            "no model to serve: give --model DIR_OR_HUB_ID (LORAGATE_MODEL), or --demo to try loragate with a tiny "
            "model that comes with it",
            BAD_SETTING,
        )
    sharers = settings.workers * settings.replicas
    if sharers > 1 and settings.redis_url is None:
        raise CliError(
            f"{sharers} gateway workers (LORAGATE_WORKERS times LORAGATE_REPLICAS) need Redis to share their limits: "
            "set LORAGATE_REDIS_URL, or use one worker",
            BAD_SETTING,
        )
    check_replicas(settings)
    if settings.engine_target is not None:
        raise CliError(
            "LORAGATE_ENGINE_TARGET is for `loragate gateway` with an engine that runs elsewhere; "
            "`loragate serve` starts its own engine; name further ones as --engine (LORAGATE_ENGINE_TARGETS)",
            BAD_SETTING,
        )
    try:
        check_addresses(settings.more_engines, settings.engine_tls)
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    if settings.engines > 1 and settings.engine.listen is not None:
        raise CliError(
            f"{settings.engines} engines (LORAGATE_ENGINES) cannot share LORAGATE_ENGINE__LISTEN: leave it out, or "
            "start further ones with `loragate engine --advertise`",
            BAD_SETTING,
        )


@contextmanager
def _engine_targets(settings: Settings) -> Iterator[tuple[str, tuple[EngineAddress, ...]]]:
    """Yield the address of the first engine, and those of the others that this server starts."""
    given = settings.engine.listen
    if given is None:
        with engine_socket() as target:
            socket = target.removesuffix(".sock")
            yield target, tuple(EngineAddress(f"engine-{n}", f"{socket}-{n}.sock") for n in range(1, settings.engines))
    elif given.endswith(":0"):
        raise CliError("LORAGATE_ENGINE__LISTEN needs a port number, so that the gateway finds the engine", BAD_SETTING)
    elif not is_local(given):
        raise CliError(
            f"LORAGATE_ENGINE__LISTEN is {given}, which other machines can reach, but `loragate serve` is the engine's "
            "only client: choose a Unix socket or a loopback address, or start `loragate engine` with TLS",
            BAD_SETTING,
        )
    else:
        yield given, ()


_LONGEST_PATH = 106  # sockaddr_un holds 108 bytes with the terminating zero, on some systems 104


@contextmanager
def engine_socket() -> Iterator[str]:
    """Yield a Unix socket as gRPC target, in a new folder of mode 0700 that is removed at the end.

    Raise CliError if TMPDIR is too long for a socket's path.
    """
    folder = Path(tempfile.mkdtemp(prefix="loragate-"))
    try:
        path = folder / "engine.sock"
        if len(str(path).encode()) + len("-63") > _LONGEST_PATH:
            raise CliError(f"the path of the temporary folder {folder.parent} is too long for a socket: set TMPDIR")
        yield f"unix:{path}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
