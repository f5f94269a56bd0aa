"""`loragate tenants …`: the operator's commands on tenants."""

from typing import Annotated, Any

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Create, list, show, update and delete tenants.

Needs the admin key. Example: `loragate tenants create acme`, then `loragate keys create acme`
""",
)

_COLUMNS = ("id", "name", "weight", "created_at", "signers")
Tenant = Annotated[str, typer.Argument(help="The tenant's id or name.")]
Weight = Annotated[
    float | None, typer.Option(help="The tenant's share of the engine, relative to other tenants' weights.")
]
Signers = Annotated[
    list[str] | None,
    typer.Option(
        "--signer",
        help="A signer of the server's settings. The tenant publishes only adapters that it has signed; repeat the "
        "option for more signers.",
    ),
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The tenant's name, which must be unique.")],
    weight: Weight = None,
    signers: Signers = None,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Create a tenant. It has no key yet: create one with `loragate keys create`.

    Examples:

    - `loragate tenants create acme --weight 2`
    - `loragate tenants create acme --signer acme-release`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows

    body: dict[str, Any] = {"name": name} | ({} if weight is None else {"weight": weight})
    body |= {"signers": signers} if signers else {}
    with as_operator(base_url, admin_key, data_dir) as api:
        show_rows([api.call("POST", "/admin/v1/tenants", json=body)], _COLUMNS, as_json=as_json)


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """List all tenants, newest first.

    Example: `loragate tenants list --json`
    """
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows

    with as_operator(base_url, admin_key, data_dir) as api:
        show_rows(api.list_all("/admin/v1/tenants"), _COLUMNS, as_json=as_json)


@app.command()
def show(
    tenant: Tenant,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Show one tenant as JSON.

    Example: `loragate tenants show acme`
    """
    from loragate.cli.client.http.api import find_tenant
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_json

    with as_operator(base_url, admin_key, data_dir) as api:
        show_json(find_tenant(api, tenant))


@app.command()
def update(
    tenant: Tenant,
    name: Annotated[str | None, typer.Option(help="The new name.")] = None,
    weight: Weight = None,
    signers: Signers = None,
    any_signer: Annotated[
        bool, typer.Option("--no-signers", help="Return the tenant to the server's policy on signatures.")
    ] = False,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Change a tenant. Options that are not given leave their value unchanged.

    Examples:

    - `loragate tenants update acme --weight 0.5`
    - `loragate tenants update acme --signer acme-release --signer acme-ci`
    - `loragate tenants update acme --no-signers`
    """
    from loragate.cli.client.http.api import find_tenant, path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.client.terminal.output import show_rows
    from loragate.cli.errors import BAD_SETTING, CliError

    if signers and any_signer:
        raise CliError("give either --signer or --no-signers, not both", BAD_SETTING)
    given = {"name": name, "weight": weight, "signers": [] if any_signer else signers or None}
    changes = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise CliError("nothing to change: give --name, --weight, --signer or --no-signers", BAD_SETTING)
    with as_operator(base_url, admin_key, data_dir) as api:
        where = path("admin", "v1", "tenants", find_tenant(api, tenant)["id"])
        show_rows([api.call("PATCH", where, json=changes)], _COLUMNS, as_json=as_json)


@app.command()
def delete(
    tenant: Tenant,
    yes: options.Yes = False,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Delete a tenant with its adapters, and revoke its keys.

    Example: `loragate tenants delete acme --yes`
    """
    from loragate.cli.client.http.api import find_tenant, path
    from loragate.cli.client.http.connect import as_operator

    with as_operator(base_url, admin_key, data_dir) as api:
        found = find_tenant(api, tenant)
        if not yes:
            typer.confirm(f"Delete tenant {found['name']} with all its adapters and keys?", abort=True, err=True)
        api.call("DELETE", path("admin", "v1", "tenants", found["id"]))
    typer.echo(f"deleted {found['id']}")
