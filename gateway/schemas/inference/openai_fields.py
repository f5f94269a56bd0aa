"""OpenAI's fields that this server does not act on.

Those that would not change the response are accepted and have no effect, so that existing clients work unchanged.
Fields that would change it are rejected with a message, unless their value has no effect.
"""

from collections.abc import Mapping
from typing import Any

from loragate.prompts.validation import field_error

NO_EFFECT = frozenset(
    {
        "guided_decoding_backend",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "service_tier",
        "spaces_between_special_tokens",
        "store",
    }
)

# Field → the values without an effect, in addition to null.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "skip_special_tokens": (True,),
    "suffix": ("",),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def describe_openai_extras(schema: dict[str, Any]) -> None:
    """Add these fields to the JSON Schema of a body that accepts them."""
    schema["properties"] |= {name: {"description": "Accepted, without effect."} for name in sorted(NO_EFFECT)}
    for name, neutral in sorted(UNSUPPORTED.items()):
        words = "Not supported; only values without an effect are accepted."
        schema["properties"][name] = {"enum": [None, *neutral], "description": words}


def without_openai_extras(document: Any) -> Any:
    """Return the body without these fields. Raise an error that names a field whose value would have an effect."""
    if not isinstance(document, dict):
        return document
    for name, neutral in UNSUPPORTED.items():
        value = document.get(name)
        if value is not None and value not in neutral:
            raise field_error(name, "this server does not support it")
    dropped = NO_EFFECT | UNSUPPORTED.keys()
    return {name: value for name, value in document.items() if name not in dropped}
