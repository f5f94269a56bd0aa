"""`loragate finetune …`: one tenant's fine-tuning jobs."""

from typing import Annotated, Any

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Train adapters on files of examples, and follow their progress.

Needs a tenant's key. Example: `loragate finetune create support.jsonl --suffix support`
""",
)

_CUT_SHORT = 130  # the status that shells report for Ctrl-C
_COLUMNS = ("id", "status", "model", "fine_tuned_model", "created_at")
JobId = Annotated[str, typer.Argument(help="The job's id.")]


@app.command()
def create(
    training_file: Annotated[
        str, typer.Argument(help="A file of examples as JSON lines, or the id of an uploaded file.")
    ],
    model: Annotated[
        str | None, typer.Option(help="The base model's id, or an adapter to continue from. [default: the base model]")
    ] = None,
    validation_file: Annotated[
        str | None, typer.Option(help="Examples for the validation loss, which are not trained on.")
    ] = None,
    suffix: Annotated[str | None, typer.Option(help="A part of the resulting model's name.")] = None,
    method: Annotated[
        str, typer.Option(help="The method: supervised, dpo for preferences, classify for labels.")
    ] = "supervised",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A hyperparameter as NAME=VALUE, such as n_epochs=3; may be repeated."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The random seed: the same seed and files give the same losses.")
    ] = None,
    metadata: Annotated[
        list[str] | None, typer.Option(help="Metadata of the job, as NAME=TEXT; may be repeated.")
    ] = None,
    wait: Annotated[bool, typer.Option("--watch/--no-watch", help="Follow the job until it ends.")] = True,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create a job and follow it to its end. Prints only the name of the resulting model on stdout, or the job's id
    with `--no-watch`.

    Local files are validated before they are uploaded; problems are reported by line. Ctrl-C leaves the job running.

    Examples:

    - `loragate finetune create support.jsonl --suffix support`
    - `loragate finetune create more.jsonl --model support-bot:3 --validation-file held-out.jsonl -s n_epochs=2`
    - `MODEL=$(loragate finetune create pairs.jsonl --method dpo --set beta=0.2)`
    - `loragate finetune create topics.jsonl --method classify --suffix topics`
    - `loragate finetune create judge.jsonl --set 'alora_invocation_tokens=[105, 29511, 106]'`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.job import JOBS, parse_hyperparameters, parse_metadata, validated
    from loragate.cli.client.terminal.chat import first_model
    from loragate.cli.client.transfer.lines_file import file_id, validate_if_local
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.finetune.data.formats import Method

    if method not in set(Method):
        raise CliError(f"--method must be one of {', '.join(Method)}, not {method}", BAD_SETTING)
    chosen = validated(method, parse_hyperparameters(setting or ()))
    if chosen.get("early_stopping_patience") is not None and validation_file is None:
        raise CliError("--set early_stopping_patience needs a --validation-file", BAD_SETTING)
    files = {"training_file": (training_file, 10), "validation_file": (validation_file, 1)}
    for given, min_examples in files.values():
        if given is not None:
            validate_if_local(given, method, min_examples)
    wanted = {"suffix": suffix, "seed": seed, "metadata": parse_metadata(metadata or ()) or None}
    with as_tenant(base_url, api_key, data_dir, model) as api:
        body: dict[str, Any] = {
            "model": model or first_model(api),
            "method": {"type": method, method: {"hyperparameters": chosen}},
        }
        body |= {name: value for name, value in wanted.items() if value is not None}
        body |= {name: file_id(api, given) for name, (given, _) in files.items() if given is not None}
        job = api.call("POST", JOBS, json=body)
        if wait:
            typer.echo(f"job {job['id']}", err=True)
            _watch(api, job["id"], as_json)
        else:
            _show(job, as_json, job["id"])


@app.command()
def watch(
    job_id: JobId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Follow a job from its first event to its end. Ctrl-C leaves it running.

    Events are printed on stderr, on a terminal with a progress bar and the loss curve; the name of the resulting model
    is printed on stdout. With `--json`, each event is a line of JSON on stdout, and the last line is the job. The exit
    status is 1 if the job failed or was cancelled.

    Example: `loragate finetune watch ftjob-3kTMd9`
    """
    from loragate.cli.client.http.connect import as_tenant

    with as_tenant(base_url, api_key, data_dir) as api:
        _watch(api, job_id, as_json)


@app.command("list")
def list_(
    metadata: Annotated[
        list[str] | None, typer.Option(help="Only jobs with this metadata, as NAME=TEXT; may be repeated.")
    ] = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List jobs, newest first.

    Examples:

    - `loragate finetune list`
    - `loragate finetune list --metadata team=support --json`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.job import JOBS, parse_metadata
    from loragate.cli.client.terminal.output import show_rows

    wanted = {f"metadata[{name}]": text for name, text in parse_metadata(metadata or ()).items()}
    with as_tenant(base_url, api_key, data_dir) as api:
        show_rows(api.list_all(JOBS, **wanted), _COLUMNS, as_json=as_json)


@app.command()
def checkpoints(
    job_id: JobId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List a job's checkpoints that can be used as models, latest first.

    Example: `loragate finetune checkpoints ftjob-3kTMd9`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.job import job_path
    from loragate.cli.client.terminal.output import show_rows

    with as_tenant(base_url, api_key, data_dir) as api:
        found = api.list_all(job_path(job_id, "checkpoints"))
        show_rows(found, ("step_number", "fine_tuned_model_checkpoint", "metrics"), as_json=as_json)


@app.command()
def cancel(
    job_id: JobId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Cancel a job for good. Its worker stops within about ten seconds.

    Example: `loragate finetune cancel ftjob-3kTMd9`
    """
    _order("cancel", job_id, as_json, base_url, api_key, data_dir)


@app.command()
def pause(
    job_id: JobId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Pause a job and save its state. Its worker stops within about ten seconds.

    Example: `loragate finetune pause ftjob-3kTMd9`
    """
    _order("pause", job_id, as_json, base_url, api_key, data_dir)


@app.command()
def resume(
    job_id: JobId,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Resume a paused job where it stopped.

    Example: `loragate finetune resume ftjob-3kTMd9`
    """
    _order("resume", job_id, as_json, base_url, api_key, data_dir)


def _order(what: str, job_id: str, as_json: bool, *connection: Any) -> None:
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.job import WAITING, job_path

    with as_tenant(*connection) as api:
        job = api.call("POST", job_path(job_id, what))
        _show(job, as_json, f"{job['id']}\t{job['status']}")
        if what != "resume" and job["status"] in WAITING:
            typer.echo(
                f"its worker is notified within ten seconds; to follow it: loragate finetune watch {job_id}", err=True
            )


def _watch(api: Any, job_id: str, as_json: bool) -> None:
    from loragate.cli.client.job_progress import follow_job, progress_display
    from loragate.cli.errors import CliError

    try:
        with progress_display(lambda line: typer.echo(line, err=not as_json), as_json=as_json) as shown:
            job = follow_job(api, job_id, shown)
    except KeyboardInterrupt:
        typer.echo(f"the job continues; to follow it again: loragate finetune watch {job_id}", err=True)
        raise typer.Exit(_CUT_SHORT) from None
    if as_json:
        _show(job, True, "")
    if job["status"] == "succeeded":
        if not as_json:
            typer.echo(job["fine_tuned_model"])
    elif job["status"] == "paused":
        typer.echo(f"the job is paused; to resume it: loragate finetune resume {job_id}", err=True)
    else:
        raise CliError(f"the job is {job['status']}" + (f": {job['error']['message']}" if job["error"] else ""))


def _show(job: Any, as_json: bool, words: str) -> None:
    import json

    typer.echo(json.dumps(job, ensure_ascii=False) if as_json else words)
