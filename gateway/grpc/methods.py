"""The table of all methods, with what each requires of its caller."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from loragate.adapter_store.auth.principal import Scope
from loragate.gateway.dependencies.requirements import Public, TenantWith
from loragate.gateway.grpc import (
    adapters,
    batches,
    classification,
    fine_tuning,
    health,
    imports,
    inference,
    open_files,
    reflection,
    releases,
)
from loragate.gateway.grpc.call import Call


@dataclass(frozen=True, slots=True)
class Method:
    """`handler` yields the response's messages: one, unless the method streams.

    `max_public_calls` of a method without a key run at once; addresses share them as `FairPlaces` says.
    """

    requirement: Public | TenantWith
    handler: Callable[[Call], AsyncGenerator[Message, None]]
    max_public_calls: int = 0


_INFERENCE = TenantWith(Scope.INFERENCE)
_READ = TenantWith(Scope.ADAPTERS_READ)
_WRITE = TenantWith(Scope.ADAPTERS_WRITE)
_PUBLIC = Public()

METHODS: Mapping[str, Method] = {
    "/loragate.v1.InferenceService/Generate": Method(_INFERENCE, inference.generate),
    "/loragate.v1.InferenceService/GenerateStream": Method(_INFERENCE, inference.generate_stream),
    "/loragate.v1.InferenceService/Chat": Method(_INFERENCE, inference.chat),
    "/loragate.v1.InferenceService/ChatStream": Method(_INFERENCE, inference.chat_stream),
    "/loragate.v1.InferenceService/Classify": Method(_INFERENCE, classification.classify),
    "/loragate.v1.InferenceService/Score": Method(_INFERENCE, classification.score),
    "/loragate.v1.InferenceService/Rerank": Method(_INFERENCE, classification.rerank),
    "/loragate.v1.AdapterService/Upload": Method(_WRITE, adapters.upload),
    "/loragate.v1.AdapterService/List": Method(_READ, adapters.list_adapters),
    "/loragate.v1.AdapterService/Get": Method(_READ, adapters.get),
    "/loragate.v1.AdapterService/Update": Method(_WRITE, adapters.update),
    "/loragate.v1.AdapterService/SetAlias": Method(_WRITE, adapters.set_alias),
    "/loragate.v1.AdapterService/DeleteAlias": Method(_WRITE, adapters.delete_alias),
    "/loragate.v1.AdapterService/Promote": Method(_WRITE, releases.promote),
    "/loragate.v1.AdapterService/Rollback": Method(_WRITE, releases.rollback),
    "/loragate.v1.AdapterService/AliasMetrics": Method(_READ, releases.alias_metrics),
    "/loragate.v1.AdapterService/UpdateVersion": Method(_WRITE, releases.update_version),
    "/loragate.v1.AdapterService/Restore": Method(_WRITE, releases.restore),
    "/loragate.v1.AdapterService/RestoreVersion": Method(_WRITE, releases.restore_version),
    "/loragate.v1.AdapterService/Delete": Method(_WRITE, adapters.delete),
    "/loragate.v1.AdapterService/ListVersions": Method(_READ, adapters.list_versions),
    "/loragate.v1.AdapterService/GetVersion": Method(_READ, adapters.get_version),
    "/loragate.v1.AdapterService/DeleteVersion": Method(_WRITE, adapters.delete_version),
    "/loragate.v1.FineTuningService/Create": Method(fine_tuning.FINE_TUNER, fine_tuning.create),
    "/loragate.v1.FineTuningService/List": Method(fine_tuning.FINE_TUNER, fine_tuning.list_jobs),
    "/loragate.v1.FineTuningService/Get": Method(fine_tuning.FINE_TUNER, fine_tuning.get),
    "/loragate.v1.FineTuningService/Cancel": Method(fine_tuning.FINE_TUNER, fine_tuning.cancel),
    "/loragate.v1.FineTuningService/Pause": Method(fine_tuning.FINE_TUNER, fine_tuning.pause),
    "/loragate.v1.FineTuningService/Resume": Method(fine_tuning.FINE_TUNER, fine_tuning.resume),
    "/loragate.v1.FineTuningService/ListEvents": Method(fine_tuning.FINE_TUNER, fine_tuning.list_events),
    "/loragate.v1.FineTuningService/ListCheckpoints": Method(fine_tuning.FINE_TUNER, fine_tuning.list_checkpoints),
    "/loragate.v1.FineTuningService/AppendToFile": Method(fine_tuning.FINE_TUNER, open_files.append),
    "/loragate.v1.FineTuningService/CloseFile": Method(fine_tuning.FINE_TUNER, open_files.close),
    "/loragate.v1.BatchService/Create": Method(_INFERENCE, batches.create),
    "/loragate.v1.BatchService/List": Method(_INFERENCE, batches.list_batches),
    "/loragate.v1.BatchService/Get": Method(_INFERENCE, batches.get),
    "/loragate.v1.BatchService/Cancel": Method(_INFERENCE, batches.cancel),
    "/loragate.v1.AdapterService/Import": Method(_WRITE, imports.import_),
    "/loragate.v1.AdapterService/ListImports": Method(_READ, imports.list_imports),
    "/loragate.v1.AdapterService/GetImport": Method(_READ, imports.get_import),
    "/loragate.v1.AdapterService/CancelImport": Method(_WRITE, imports.cancel_import),
    # Each has places of its own, so that endless streams do not take those of the probes.
    "/grpc.health.v1.Health/Check": Method(_PUBLIC, health.check, max_public_calls=1024),
    "/grpc.health.v1.Health/Watch": Method(_PUBLIC, health.watch, max_public_calls=128),
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": Method(
        _PUBLIC, reflection.server_reflection_info, max_public_calls=64
    ),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Method(
        _PUBLIC, reflection.server_reflection_info, max_public_calls=64
    ),
}
