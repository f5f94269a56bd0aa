"""`loragate doctor`."""

import typer

from loragate.cli import options


def doctor(
    as_json: options.AsJson = False,
    host: options.Host = None,
    port: options.Port = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Check this machine and the services it needs. The checks cover Python, CPU, memory, GPU, kernels, disk and port;
    the database (reachability, schema, connection limit); Redis (version, latency, eviction policy); the certificate
    (key, names, expiry); clocks, the trace collector and the settings.

    Each line is ok, warn or fail, with advice. The exit status is 1 if a check failed.

    Examples:

    - `loragate doctor`
    - `loragate doctor --host llm.example.org --tls-cert fullchain.pem --tls-key privkey.pem`
    - `LORAGATE_REDIS_URL=redis://cache:6379 loragate doctor --json`
    """
    from loragate.cli.doctor.report import examine, failed, show

    findings = examine(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        data_dir=data_dir,
        config=config,
    )
    show(findings, as_json=as_json)
    if failed(findings):
        raise typer.Exit(1)
