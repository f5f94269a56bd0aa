"""`loragate doctor`."""

import typer

from loragate.cli import options


def doctor(
    as_json: options.AsJson = False,
    host: options.Host = None,
    port: options.Port = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Say what this machine can and cannot do: Python, CPU, memory, GPU, kernels, disk, port; and whether the database
    (reachable, schema, connections against its limit), Redis (version, distance, eviction), clocks, collector and
    settings fit together.

    Each line is ok, warn or fail, with what to do. The exit status is 1 when something stands in the way.

    Examples:

    - `loragate doctor`
    - `LORAGATE_REDIS_URL=redis://cache:6379 loragate doctor --json`
    """
    from loragate.cli.doctor.report import examine, failed, show

    findings = examine(host=host, port=port, data_dir=data_dir, config=config)
    show(findings, as_json=as_json)
    if failed(findings):
        raise typer.Exit(1)
