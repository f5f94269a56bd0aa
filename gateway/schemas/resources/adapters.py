"""Bodies of /v1/adapters."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS
from loragate.adapter_store.adapters.aliases import MAX_TARGETS, MAX_WEIGHT
from loragate.adapter_store.adapters.desired_state import Placement
from loragate.adapter_store.adapters.lineage import MAX_FIGURES, MAX_NOTES, Lineage
from loragate.adapter_store.signatures.bundle import MAX_SIGNATURE_BYTES, SIGNATURE_FILE
from loragate.gateway.schemas.resources.limits import LimitsBody
from loragate.prompts.bodies import Body, field_error

Status = Literal["ready", "disabled"]


class LineageFields(Body):
    """The origin of a version, in addition to its files. In a form each is a text field, `evaluation` as JSON."""

    notes: str | None = None
    dataset_digest: str | None = None
    parent_version: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    evaluation: Annotated[dict[str, float], Field(max_length=MAX_FIGURES)] | None = None

    def lineage(self, source: str = "upload") -> Lineage:
        """Return the lineage. Raise Invalid."""
        return Lineage(source, self.dataset_digest, self.parent_version, self.evaluation or {}, self.notes)


_FileId = Annotated[str, StringConstraints(max_length=64)]
Tag = Annotated[str, StringConstraints(max_length=1000)]


class AdapterPatch(Body):
    """Body of PATCH /v1/adapters/{name}. What is absent or null stays unchanged; null within `limits` removes a
    limit."""

    limits: LimitsBody = Field(default_factory=LimitsBody)
    tags: Annotated[list[Tag], Field(max_length=1000)] | None = None
    description: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    status: Status | None = None


class AdapterPlacement(Body):
    """Body of PATCH /admin/v1/adapters/{adapter_id}."""

    placement: Annotated[Placement, Field(strict=False)] | None


class AdapterFromFiles(LineageFields):
    """JSON body of POST /v1/adapters: an adapter from files that were uploaded before with the purpose `adapter`.

    The config is such a file, or the text of one, which is stored byte for byte. `signature` is the text of
    `model.sig`.
    """

    name: Annotated[str, StringConstraints(max_length=1024)]
    alias: Annotated[str, StringConstraints(max_length=1024)] | None = None
    tags: Annotated[list[Tag], Field(max_length=1000)] | None = None
    description: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    tensors_file_id: _FileId
    config_file_id: _FileId | None = None
    adapter_config: Annotated[str, StringConstraints(max_length=1 << 20)] | None = None
    signature: Annotated[str, StringConstraints(max_length=MAX_SIGNATURE_BYTES)] | None = None

    @model_validator(mode="after")
    def _has_one_config(self) -> "AdapterFromFiles":
        if (self.config_file_id is None) == (self.adapter_config is None):
            raise field_error("adapter_config", "give one of adapter_config and config_file_id")
        return self


class AliasTargetBody(Body):
    """A version that an alias points to, and its weight."""

    version: Annotated[int, Field(ge=1, lt=1 << 31)]
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT)] = 1


class AliasPut(Body):
    """The versions that the alias points to from now on."""

    targets: Annotated[
        list[AliasTargetBody],
        Field(fail_fast=True, min_length=1, max_length=MAX_TARGETS, description="No version is named twice."),
    ]


DEFAULT_HOURS, MAX_HOURS = 24, 168
Version = Annotated[int, Field(ge=1, lt=1 << 31)]


class VersionPatch(Body):
    """Disables a version, or enables it again."""

    status: Status


class MetricsQuery(Body):
    """The period of an alias's metrics: the last hours, at most a week."""

    hours: Annotated[int, Field(ge=1, le=MAX_HOURS)] = DEFAULT_HOURS


class Promotion(Body):
    """The single version that the alias points to from now on, given by number or as the target of another alias."""

    alias: str = DEFAULT_ALIAS
    version: Version | None = None
    from_alias: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "Promotion":
        if (self.version is None) == (self.from_alias is None):
            raise field_error("version", "give either `version` or `from_alias`")
        return self


class Rollback(Body):
    """The alias to point back to what it pointed to before its last change."""

    alias: str = DEFAULT_ALIAS


_TEXT = {"type": "string"}

_FILE = {"type": "string", "format": "binary"}

_TEXTS = ("name", "alias", "tags", "description")

_FILES = ("adapter_config.json", "adapter_model.safetensors")

_SIGNATURE = {**_FILE, "description": "The signature of both files, a Sigstore bundle of OpenSSF Model Signing."}

UPLOAD_FORM: dict[str, Any] = {
    "type": "object",
    "description": "The two files that PEFT saves, and the adapter's name. Without `alias` the alias is `default`. "
    "`tags`, separated by commas, and `description` replace those of the adapter. The other fields describe "
    "the origin of the version; `evaluation` is a JSON object of metrics by name.",
    "properties": {
        **dict.fromkeys(_TEXTS, _TEXT),
        "notes": {"type": "string", "maxLength": MAX_NOTES},
        "dataset_digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "parent_version": {"type": "integer", "minimum": 1},
        "evaluation": {"type": "string", "contentMediaType": "application/json"},
        **dict.fromkeys(_FILES, _FILE),
        SIGNATURE_FILE: _SIGNATURE,
    },
    "required": ["name", *_FILES],
    "additionalProperties": False,
}
