"""`loragate chat` and `loragate classify`: requests to a model."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from loragate.cli import options


def chat(
    prompt: Annotated[str | None, typer.Argument(help="Send one prompt; without it, start a chat.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The base model's id, an adapter, adapter:version or adapter@alias. [default: the base]"),
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum length of a reply, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="The sampling temperature; 0 is greedy.")] = None,
    base_url: options.BaseUrl = None,
    api_key: options.ApiKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Chat with a model or an adapter. Replies are printed as they are generated.

    Without a prompt, the command starts a chat: on a terminal with history and line editing, otherwise with one message
    per line of stdin. Ctrl-D ends the chat, Ctrl-C stops a reply.

    Examples:

    - `loragate chat "What is the capital of France?"`
    - `loragate chat --model support-bot:3 --system "Answer in one word."`
    - `printf 'Hello!\\n' | loragate chat --model support-bot`
    """
    from loragate.cli.client.http.connect import as_tenant
    from loragate.cli.client.terminal.chat import first_model, print_reply, run_chat
    from loragate.cli.client.terminal.conversation import Conversation

    with as_tenant(base_url, api_key, data_dir, model) as api:
        chosen = model or first_model(api)
        conversation = Conversation(api, chosen, system=system, max_tokens=max_tokens, temperature=temperature)
        if prompt is not None:
            print_reply(conversation, prompt)
        else:
            run_chat(conversation, chosen)


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
