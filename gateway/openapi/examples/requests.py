"""Examples of request bodies, by their type. A test sends all of them."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.classification import ClassifyRequest, RerankRequest, ScoreRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.inference.conversations import (
    ConversationCreate,
    ConversationUpdate,
    ItemsCreate,
    ResponseStorePatch,
)
from loragate.gateway.schemas.inference.embeddings import EmbeddingRequest
from loragate.gateway.schemas.inference.messages import MessageRequest, MessageTokensRequest
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.inference.tokens import DetokenizeRequest, TokenizeRequest
from loragate.gateway.schemas.resources.adapters import (
    AdapterFromFiles,
    AdapterPatch,
    AdapterPlacement,
    AliasPut,
    Promotion,
    Rollback,
    VersionPatch,
)
from loragate.gateway.schemas.resources.admin import AdminKeyCreate, KeyCreate, KeyRotate, TenantCreate, TenantPatch
from loragate.gateway.schemas.resources.batches import BatchCreate
from loragate.gateway.schemas.resources.fine_tuning import JobCreate
from loragate.gateway.schemas.resources.imports import ImportCreate
from loragate.gateway.schemas.resources.limits import LimitsPatch
from loragate.gateway.schemas.resources.uploads import UploadComplete, UploadCreate

NAME = "haiku"  # of the adapter
CLASSIFIER = "topics"
SCORER = "helpful"  # with one label
BASE = "meta-llama/Llama-3.1-8B-Instruct"
FILE = "file-3mNp5qRs7tUv9wXy1zAb3cDe"
_USER = {"role": "user", "content": "Write a line about the sea."}
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

REQUESTS: Mapping[type[BaseModel], Mapping[str, Any]] = {
    ChatRequest: {
        "A question": {
            "model": NAME,
            "messages": [{"role": "system", "content": "You answer in verse."}, _USER],
            "max_completion_tokens": 64,
            "temperature": 0.7,
        },
        "A stream that ends with its usage": {
            "model": f"{NAME}:1",
            "messages": [_USER],
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        "JSON that matches a schema": {
            "model": f"{NAME}@default",
            "messages": [{"role": "user", "content": "Where is the Eiffel tower?"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": _CITY}},
        },
        "Tools": {
            "model": NAME,
            "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
            "tools": [{"type": "function", "function": {"name": "weather", "parameters": _CITY}}],
            "tool_choice": "auto",
        },
    },
    TokenizeRequest: {
        "A prompt": {"model": NAME, "prompt": "The sea is", "return_token_strs": True},
        "A chat": {"model": NAME, "messages": [_USER]},
    },
    DetokenizeRequest: {"Tokens": {"model": NAME, "tokens": [3, 1, 2]}},
    ResponseRequest: {
        "A question": {
            "model": NAME,
            "instructions": "You answer in verse.",
            "input": "Write a line about the sea.",
            "max_output_tokens": 64,
        },
        "A stream": {"model": NAME, "input": [_USER], "stream": True},
        "The result of a function": {
            "model": NAME,
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "What is the weather in Oslo?"}]},
                {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
            ],
            "tools": [{"type": "function", "name": "weather", "parameters": _CITY}],
        },
        "JSON that matches a schema": {
            "model": NAME,
            "input": "Where is the Eiffel tower?",
            "text": {"format": {"type": "json_schema", "name": "place", "schema": _CITY}},
        },
    },
    MessageRequest: {
        "A question": {
            "model": NAME,
            "max_tokens": 64,
            "system": "You answer in verse.",
            "messages": [_USER],
            "stop_sequences": ["THE END"],
        },
        "A stream": {"model": NAME, "max_tokens": 64, "messages": [_USER], "stream": True},
        "The result of a tool": {
            "model": NAME,
            "max_tokens": 64,
            "messages": [
                {"role": "user", "content": "What is the weather in Oslo?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]},
            ],
            "tools": [{"name": "weather", "input_schema": _CITY}],
        },
        "Reasoning": {
            "model": NAME,
            "max_tokens": 64,
            "messages": [_USER],
            "thinking": {"type": "enabled", "budget_tokens": 32},
        },
    },
    MessageTokensRequest: {"A question": {"model": NAME, "messages": [_USER]}},
    CompletionRequest: {
        "A prompt": {"model": NAME, "prompt": "The sea,", "max_tokens": 16, "stop": ["\n"]},
        "A scored prompt": {"model": NAME, "prompt": "The sea,", "echo": True, "logprobs": 1, "max_tokens": 0},
        "Several prompts, with logprobs": {"model": NAME, "prompt": ["The sea,", "A star"], "logprobs": 2, "seed": 7},
    },
    EmbeddingRequest: {
        "Two texts": {"model": NAME, "input": ["the sea", "a star"]},
        "As bytes": {"model": NAME, "input": "the sea", "encoding_format": "base64"},
    },
    ClassifyRequest: {
        "Two texts": {"model": CLASSIFIER, "input": ["My card was charged twice.", "The screen stays black."]},
        "A chat": {"model": CLASSIFIER, "messages": [_USER]},
    },
    ScoreRequest: {"One text against two": {"model": SCORER, "text_1": "the sea", "text_2": ["a wave", "a star"]}},
    RerankRequest: {
        "Two documents": {"model": SCORER, "query": "the sea", "documents": ["a wave", "a star"], "top_n": 1},
        "Two answers to a question, by a reward model": {
            "model": SCORER,
            "query": "What is the sea?",
            "documents": ["Water.", "I will not say."],
            "prompt_format": "chat",
        },
    },
    AdapterPatch: {
        "Tags and a description": {"tags": ["team:verse", "three-lines"], "description": "Answers in verse."},
        "Set one limit and remove another": {"limits": {"requests_per_minute": 60, "tokens_per_day": None}},
        "Disable": {"status": "disabled"},
        "Enable": {"status": "ready"},
    },
    AdapterPlacement: {
        "Pinned to the device": {"placement": "pinned"},
        "Prefetched to the disk": {"placement": "prefetched"},
        "On demand": {"placement": None},
    },
    LimitsPatch: {"Set one limit and remove another": {"limits": {"requests_per_minute": 60, "tokens_per_day": None}}},
    AdapterFromFiles: {
        "Two files": {
            "name": NAME,
            "alias": "canary",
            "config_file_id": "file-2bCd4eFg6hJk8mNp0qRs1tUv",
            "tensors_file_id": "file-7hJk3mNp5qRs1tUv9wXy2zAb",
        },
    },
    UploadCreate: {
        "Training data": {
            "filename": "train.jsonl",
            "purpose": "fine-tune",
            "bytes": 3,
            "mime_type": "application/jsonl",
        },
        "An adapter that expires after two hours": {
            "filename": "adapter_model.safetensors",
            "purpose": "adapter",
            "bytes": 3,
            "mime_type": "application/octet-stream",
            "expires_after": {"anchor": "created_at", "seconds": 7200},
        },
    },
    UploadComplete: {
        "Parts and the MD5 of the file": {
            "part_ids": ["part_4fGh2kLmN8pQ6rStU0vW"],
            "md5": "900150983cd24fb0d6963f7d28e17f72",
        },
    },
    VersionPatch: {"Disable": {"status": "disabled"}, "Enable": {"status": "ready"}},
    Promotion: {
        "A version for all traffic": {"alias": "default", "version": 2},
        "The canary for all traffic": {"alias": "default", "from_alias": "canary"},
    },
    Rollback: {"Undo the last change": {"alias": "default"}},
    AliasPut: {
        "One version": {"targets": [{"version": 1}]},
        "A tenth for a new version": {"targets": [{"version": 1, "weight": 90}, {"version": 2, "weight": 10}]},
    },
    ImportCreate: {
        "From the public hub": {"source": "hf://acme/haiku@" + 8 * "0f9c3", "name": NAME, "alias": "canary"},
    },
    JobCreate: {
        "Default hyperparameters": {
            "model": BASE,
            "training_file": FILE,
            "suffix": "support",
            "metadata": {"team": "a"},
        },
        "Preference training from an adapter": {
            "model": f"{NAME}:1",
            "training_file": FILE,
            "validation_file": FILE,
            "method": {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 2, "beta": 0.1, "batch_size": "auto"}}},
            "seed": 7,
        },
        "A classifier": {
            "model": BASE,
            "training_file": FILE,
            "method": {"type": "classify", "classify": {"hyperparameters": {"n_epochs": 3, "validation_split": 0.2}}},
            "suffix": "topics",
        },
        "Explicit hyperparameters": {
            "model": BASE,
            "training_file": FILE,
            "method": {
                "type": "supervised",
                "supervised": {"hyperparameters": {"n_epochs": 3, "lora_rank": 8, "target_modules": ["q_proj"]}},
            },
        },
    },
    ConversationCreate: {"With an item": {"items": [_USER], "metadata": {"topic": "the sea"}}, "Empty": {}},
    ConversationUpdate: {"A topic": {"metadata": {"topic": "the sea"}}},
    ItemsCreate: {"A message": {"items": [_USER]}},
    ResponseStorePatch: {"On": {"store_by_default": True}},
    BatchCreate: {
        "Chats": {"input_file_id": FILE, "endpoint": "/v1/chat/completions", "completion_window": "24h"},
        "Embeddings, with an expiry of the results": {
            "input_file_id": FILE,
            "endpoint": "/v1/embeddings",
            "completion_window": "7d",
            "metadata": {"team": "a"},
            "output_expires_after": {"anchor": "created_at", "seconds": 604_800},
        },
    },
    TenantCreate: {
        "With limits": {"name": "acme", "weight": 2.0, "limits": {"requests_per_minute": 600, "max_adapters": 20}},
        "With the configured limits": {"name": "globex"},
    },
    TenantPatch: {"A new weight": {"weight": 3.0}},
    AdminKeyCreate: {"For a program": {"name": "deploy pipeline", "expires_at": "2090-01-01T00:00:00Z"}},
    KeyCreate: {
        "For inference": {"name": "backend", "scopes": ["inference"], "limits": {"max_concurrency": 8}},
        "All scopes, with an expiry date": {"name": "ci", "expires_at": "2090-01-01T00:00:00Z"},
    },
    KeyRotate: {"An hour for both keys": {"grace_seconds": 3600}},
}
