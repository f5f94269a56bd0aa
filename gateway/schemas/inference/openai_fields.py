"""OpenAI's and vLLM's fields of completions and embeddings that this server does not act on."""

from loragate.prompts.bodies import ClientBody, ExtraFields, Refused

IGNORED = (
    "guided_decoding_backend",
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "spaces_between_special_tokens",
    "store",
)
MODERATION = Refused("this server moderates nothing: leave it out")
VERBOSITY = Refused("the model has no such setting: leave it out, and ask for it in a message", ("medium",))
OF_COMPLETIONS = ExtraFields(
    ignored=IGNORED,
    refused={
        "audio": Refused("this server reads and writes text only: leave it out"),
        "modalities": Refused("this server reads and writes text only: leave it out, or send ['text']", (["text"],)),
        "moderation": MODERATION,
        "skip_special_tokens": Refused("this server does not support it: leave it out, or send true", (True,)),
        "suffix": Refused("text cannot be inserted into another: leave it out", ("",)),
        "verbosity": VERBOSITY,
        "web_search_options": Refused("this server runs no tools: leave it out"),
    },
)


class PromptCacheOptions(ClientBody):
    """What a cache keeps, and for how long. A prefix that repeats is always cached here."""

    extras = ExtraFields(
        ignored=("comparison_response_id", "mode", "ttl"),
        refused={"prewarm": Refused("every request is answered: leave it out, or send false", (False,))},
    )
