from typing import Any

from loragate.adapter_store.base_model.layout import layout_of
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseParameter, ModuleKind
from loragate.v1 import engine_pb2


async def test_the_latest_manifest_is_kept(store: Any, manifest: engine_pb2.Manifest) -> None:
    assert await store.manifest() is None
    await store.publish_manifest(manifest)
    assert await store.manifest() == manifest
    manifest.tokenizer_json = b"{}\0\xff"
    await store.publish_manifest(manifest)
    await store.publish_manifest(manifest)
    assert await store.manifest() == manifest


def test_the_layout_matches_the_manifest(manifest: engine_pb2.Manifest) -> None:
    manifest.tied_embeddings = True
    manifest.modules.add(name="wte", kind=engine_pb2.MODULE_KIND_EMBEDDING, in_features=9, out_features=8)
    manifest.modules.add(name="c_attn", kind=engine_pb2.MODULE_KIND_CONV1D, in_features=8, out_features=24)
    manifest.modules.add(name="from the future", kind=engine_pb2.MODULE_KIND_UNSPECIFIED)
    layout = layout_of(manifest)
    assert (layout.model_type, layout.num_layers, layout.max_rank) == ("llama", 2, 64)
    assert layout.tied_embeddings
    assert len(layout.modules) == 6
    linear = layout.modules["model.layers.0.self_attn.q_proj"]
    assert (linear.kind, linear.in_features, linear.out_features) == (ModuleKind.LINEAR, 8, 8)
    assert linear.servable
    assert layout.modules["wte"].kind is ModuleKind.EMBEDDING
    assert not layout.modules["wte"].servable
    assert layout.modules["c_attn"].kind is ModuleKind.CONV1D


def test_the_layout_has_what_is_served_besides_linears(manifest: engine_pb2.Manifest) -> None:
    manifest.adapter_kinds.extend(["dora", "from the future"])
    manifest.modules.add(name="norm", kind=engine_pb2.MODULE_KIND_NORM, in_features=8, out_features=8, bias=True)
    manifest.parameters.add(module="mlp.experts", name="down_proj", shape=[3, 8, 4], transposed=True, servable=True)
    manifest.input_embedding, manifest.output_head = "wte", "model.layers.0.self_attn.q_proj"
    layout = layout_of(manifest)
    assert layout.serves == {AdapterKind.DORA}
    assert layout.modules["norm"].kind is ModuleKind.NORM
    assert layout.modules["norm"].bias
    assert layout.parameters == {
        "mlp.experts.down_proj": BaseParameter("mlp.experts", "down_proj", (3, 8, 4), transposed=True)
    }
    assert layout.output_head is layout.modules["model.layers.0.self_attn.q_proj"]
    assert layout.embedding is None, "what is named but not there is not guessed"


def test_a_manifest_of_an_older_engine_has_a_layout(manifest: engine_pb2.Manifest) -> None:
    manifest.modules.add(name="wte", kind=engine_pb2.MODULE_KIND_EMBEDDING, in_features=9, out_features=8)
    manifest.modules.add(name="lm_head", kind=engine_pb2.MODULE_KIND_LINEAR, in_features=8, out_features=9)
    layout = layout_of(manifest)
    assert layout.serves == frozenset()
    assert layout.parameters == {}
    assert layout.embedding is layout.modules["wte"]
    assert layout.output_head is layout.modules["lm_head"]
