"""`loragate classify`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from loragate.cli import options


def classify(
    model: Annotated[str, typer.Option(help="A classifier: adapter, adapter:version or adapter@alias.")],
    texts: Annotated[list[str] | None, typer.Argument(help="The texts; without them, one per line of stdin.")] = None,
    logits: Annotated[bool, typer.Option(help="Print logits in place of probabilities.")] = False,
    as_json: options.AsJson = False,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Print the label of each text and its score. With an adapter for labels of tokens, each token has a row.

    Examples:

    - `loragate classify --model topics "My card was charged twice."`
    - `loragate classify --model topics --json < tickets.txt`
    """
    import sys

    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.output import show_json, show_rows

    given = texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not given:
        raise typer.BadParameter("give a text, or one per line of stdin", param_hint="TEXTS")
    body = {"model": model, "input": given} | ({"use_activation": False} if logits else {})
    with as_tenant(base_url, api_key, data_dir, model) as api:
        answer = api.call("POST", "/v1/classify", json=body)
    if as_json:
        show_json(answer)
    else:
        show_rows(_rows(answer, given), ("text", "label", "score"), as_json=False)


def _rows(answer: dict[str, Any], texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    for item, text in zip(answer["data"], texts, strict=True):
        for token in item.get("tokens", [item]):
            yield {"text": token.get("token", text), "label": token["label"], "score": token["score"]}
