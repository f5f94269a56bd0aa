"""Invalid adapter_config.json files: each case is made from a valid one, with the field that the error must name."""

import gzip
import pickle
import zipfile
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from tests.attacks.adapter_files import Change, config_text, fields, more_config, removed, without


@dataclass(frozen=True)
class Case:
    """`change` is applied to a valid adapter of `kind`; the error's param ends with `param`, its text
    contains `words`.
    """

    change: Change
    param: str
    words: str = ""
    kind: str = "plain"


CONFIG = "adapter_config.json"
PLACE = "layers.0.self_attn.q_proj"


def replaced(raw: bytes, words: str = "", param: str = CONFIG) -> Case:
    return Case(config_text(lambda _: raw), param, words)


def zipped(name: str, data: bytes) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return file.getvalue()


DOCUMENTS: dict[str, Case] = {
    "empty": replaced(b"", "not valid JSON"),
    "blank": replaced(b"  \n", "not valid JSON"),
    "null": replaced(b"null", "one JSON object"),
    "a list": replaced(b"[]", "one JSON object"),
    "a string": replaced(b'"peft_type"', "one JSON object"),
    "a number": replaced(b"1", "one JSON object"),
    "an empty object": replaced(b"{}", "peft_type is missing", "peft_type"),
    "cut": Case(config_text(lambda raw: raw[: len(raw) // 2]), CONFIG, "not valid JSON"),
    "cut by one": Case(config_text(lambda raw: raw.rstrip()[:-1]), CONFIG, "not valid JSON"),
    "more after its end": Case(config_text(lambda raw: raw + b"{}"), CONFIG, "not valid JSON"),
    "NUL after its end": Case(config_text(lambda raw: raw + b"\0"), CONFIG, "not valid JSON"),
    "NUL inside": Case(config_text(lambda raw: raw.replace(b"LORA", b"LO\0RA", 1)), CONFIG, "not valid JSON"),
    "a byte order mark": Case(config_text(lambda raw: b"\xef\xbb\xbf" + raw), CONFIG),
    "UTF-16": Case(config_text(lambda raw: raw.decode().encode("utf-16")), CONFIG, "not valid UTF-8"),
    "Latin-1": Case(config_text(lambda raw: raw.replace(b"LORA", b"L\xf6RA", 1)), CONFIG, "not valid UTF-8"),
    "an overlong encoding": Case(config_text(lambda raw: raw.replace(b"LORA", b"\xc0\xaf", 1)), CONFIG, "UTF-8"),
    "a comment": Case(config_text(lambda raw: b"// by hand\n" + raw), CONFIG, "not valid JSON"),
    "a trailing comma": Case(config_text(lambda raw: raw.rstrip()[:-1] + b",}"), CONFIG, "not valid JSON"),
    "single quotes": Case(config_text(lambda raw: raw.replace(b'"', b"'")), CONFIG, "not valid JSON"),
    "YAML": replaced(b"peft_type: LORA\nr: 4\n", "not valid JSON"),
    "a pickle": replaced(pickle.dumps({"peft_type": "LORA"}), ""),
    "gzip": Case(config_text(gzip.compress), CONFIG),
    "zip": Case(config_text(lambda raw: zipped("adapter_config.json", raw)), CONFIG),
    "half a surrogate": Case(more_config(r'"runtime_config": "\ud800"'), CONFIG, "not valid UTF-8"),
    "half a surrogate in a key": Case(more_config(r'"\udc00": 1'), CONFIG),
    "a raw surrogate": Case(more_config('"revision": "\ud800"'), CONFIG, "not valid UTF-8"),
    "a key twice": Case(more_config('"r": 64'), CONFIG, 'the key "r" twice'),
    "a key twice, escaped": Case(more_config(r'"\u0072": 64'), CONFIG, 'the key "r" twice'),
    "a key twice, deep": Case(more_config('"eva_config": {"rho": 1, "rho": 2}'), CONFIG, '"rho" twice'),
    "NaN": Case(more_config('"loftq_config": NaN'), CONFIG, "NaN"),
    "Infinity": Case(more_config('"loftq_config": -Infinity'), CONFIG, "Infinity"),
    "a number of a thousand digits": Case(more_config('"revision": ' + "9" * 1000), CONFIG, "20 digits"),
    "deep": Case(more_config('"eva_config": ' + "[" * 100 + "]" * 100), CONFIG, "is nested too deeply"),
    "very deep": replaced(b'{"eva_config": ' + b"[" * 150_000, "is nested too deeply"),
    "very deep objects": replaced(b'{"a":' * 50_000, "is nested too deeply"),
    "many values": Case(more_config('"eva_config": [' + "1," * 300_000 + "1]"), CONFIG, "too many values"),
    "many strings": Case(more_config('"eva_config": [' + '"",' * 300_000 + '""]'), CONFIG, "too many values"),
    "huge": Case(config_text(lambda raw: raw + b" " * (1 << 20)), CONFIG, "larger than 1048576 bytes"),
    "a string without end": replaced(b'{"revision": "' + rb"\"" * 500_000),
}


def _unknown(name: str, value: Any) -> Case:
    return Case(fields(**{name: value}), name, "is not a field of PEFT")


UNKNOWN: dict[str, Case] = {
    f"unknown: {name}": _unknown(name, value)
    for name, value in {
        "auto_map": {"AutoModelForCausalLM": "evil--model.Evil"},
        "custom_pipelines": {"evil": {"impl": "evil.Evil"}},
        "trust_remote_code": True,
        "_target_": "os.system",
        "__class__": "os.system",
        "__reduce__": ["os.system", ["id"]],
        "py/object": "subprocess.Popen",
        "quantization_config": {"load_in_4bit": True},
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "lora_A": [[1.0]],
        "R": 8,
        "r ": 8,
        "../../etc/passwd": 1,
        "x" * 5000: 1,
        "extra_field_of_a_newer_peft": None,
    }.items()
    if len(name) < 200
}
UNKNOWN["unknown: a name without end"] = Case(fields(**{"x" * 5000: 1}), "x…", "is not a field of PEFT")
UNKNOWN["unknown: control characters"] = Case(fields(**{"\x1b[2J": 1}), r"\x1b[2J", "is not a field of PEFT")

REDOS = ("(a+)+$", "(.*.*)*x", "(a|a)*b", "(q|_|p|r|o|j|.)*" * 200 + "x", "((((.{9}){9}){9}){9}){9}", "(?:.?){5000}z")

_BAD: dict[str, tuple[object, ...]] = {
    "peft_type": ("LOHA", "IA3", "lora", "PROMPT_TUNING", None, ["LORA"], 1),
    "task_type": ("SEQ_CLS", "TOKEN_CLS", "FEATURE_EXTRACTION", "causal_lm", 1),
    "r": (0, -1, 1.5, "4", True, None, [4], 10**9, 2**63, {"q_proj": 4}),
    "lora_alpha": ("16", None, True, [16], 1e7, -1e7, 1e300),
    "use_rslora": (1, "true", None),
    "use_dora": ("yes", 0),
    "lora_bias": ([], "all"),
    "bias": ("some", None, True),
    "target_modules": (None, [], "", [1], [""], [["q_proj"]], {"q_proj": 4}, 7, "x" * 20_000),
    "exclude_modules": (3, [None], {"a": 1}),
    "rank_pattern": ([1], "q_proj", {"q_proj": 0}, {"q_proj": -4}, {"q_proj": 2.5}, {"q_proj": "4"}, {"": 4}),
    "alpha_pattern": ([1], {"q_proj": None}, {"q_proj": "1"}, {"q_proj": 1e300}),
    "layers_to_transform": ("1", [1, True], [-1], [10**19], 1.5),
    "layers_pattern": (["(a+)+"], ["layers|h"], [""], 1, ["layers"] * 65),
    "init_lora_weights": ("pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq", "zeros", None, 1, {}),
    "layer_replication": ([[0, 2], [1, 3]], "0-2"),
    "arrow_config": ({"top_k": 2},),
    "kasa_config": ({"beta": 1},),
    "megatron_config": ({"tensor_model_parallel_size": 8},),
    "use_bdlora": (True, {"nblocks": 0}, {"nblocks": 2}, {"blocks": 2}, {"target_modules_bd_a": "q_proj"}),
    "target_parameters": ("experts", [1], {"a": 1}),
    "modules_to_save": ("lm_head", ["lm.*"], ["(a+)+$"], [""], [1], ["mlp.gate"], ["experts"]),
    "trainable_token_indices": ("5", [-1], [1.5], [5, 5], [], {"": [5]}, {"wte": [5]}, [96], [1 << 31], [10**12]),
    "alora_invocation_tokens": (["a"], [-1], [1 << 31], "7", 7, [96]),
    "ensure_weight_tying": ("true", 1),
    "use_qalora": ("no",),
}
_COMPANIONS = {"layers_pattern": {"layers_to_transform": [0]}}


def _bad_values() -> dict[str, Case]:
    """Return every field with invalid values."""
    cases = {}
    for name, values in _BAD.items():
        for value in values:
            shown = repr(value) if len(repr(value)) < 40 else f"{repr(value)[:20]}…"
            cases[f"{name}: {shown}"] = Case(fields(**_COMPANIONS.get(name, {}), **{name: value}), f": {name}")
    for position, pattern in enumerate(REDOS):
        cases[f"target_modules: regex {position}"] = Case(fields(target_modules=pattern), ": target_modules")
    return cases


SETTINGS: dict[str, Case] = _bad_values() | {
    "no peft_type": Case(without("peft_type"), "peft_type", "is missing"),
    "no target_modules": Case(without("target_modules"), "target_modules", "is empty"),
    "names that match nothing": Case(fields(target_modules=["c_attn"]), "target_modules", "matches no module"),
    "a pattern that matches nothing": Case(fields(target_modules=r"h\.\d+"), "target_modules", "matches no module"),
    "all excluded": Case(fields(exclude_modules=["q_proj", "v_proj"]), "target_modules", "matches no module"),
    "a layer that is not there": Case(fields(layers_to_transform=[99]), "target_modules", "matches no module"),
    "layers of a pattern": Case(fields(target_modules=".*q_proj", layers_to_transform=[0]), "layers_to_transform"),
    "a pattern that does not close": Case(fields(target_modules="(q_proj"), "target_modules"),
    "a backreference": Case(fields(target_modules=r"(.)\1.*"), "target_modules"),
    "a lookbehind": Case(fields(target_modules="(?<=x)q_proj"), "target_modules"),
    "a conditional": Case(fields(target_modules="(q)?(?(1)_proj|v)"), "target_modules"),
    "a norm targeted": Case(fields(target_modules=["norm"]), "target_modules", "a norm"),
    "an exclusion without end": Case(fields(exclude_modules="(?:.?){5000}z"), "exclude_modules"),
    "a rank pattern without end": Case(fields(rank_pattern={"(?:.?){5000}z": 2}), "rank_pattern"),
    "an alpha pattern without end": Case(fields(alpha_pattern={"(" * 3000: 2}), "alpha_pattern"),
    "a rank over the engine's": Case(fields(rank_pattern={"q_proj": 65}), ": r", "at most 64 is served"),
    "another rank than the file's": Case(fields(r=8), f"{PLACE}.lora_A.weight", "must be [8, 32]"),
    "another pattern than the file's": Case(fields(rank_pattern={"q_proj": 2}), f"{PLACE}.lora_A.weight", "[2, 32]"),
    "a module without tensors": Case(fields(target_modules=["q_proj", "k_proj", "v_proj"]), "k_proj.lora_A.weight"),
    "a module with tensors not named": Case(fields(target_modules=["q_proj"]), "v_proj.lora_A.weight"),
    "everything targeted": Case(fields(target_modules="all-linear"), ".weight", "is missing"),
    "DoRA without magnitudes": Case(fields(use_dora=True), "lora_magnitude_vector", "is missing"),
    "magnitudes without DoRA": Case(fields(use_dora=False), "lora_magnitude_vector", "use_dora is false", "dora"),
    "lora_bias without biases": Case(fields(lora_bias=True), "lora_B.bias", "is missing"),
    "biases without lora_bias": Case(fields(lora_bias=False), "lora_B.bias", "lora_bias is false", "biased"),
    "a saved head without tensors": Case(fields(modules_to_save=["lm_head"]), "lm_head.weight", "is missing"),
    "a head not named as saved": Case(fields(modules_to_save=None), "weight", "modules_to_save", "saved"),
    "trained tokens without rows": Case(fields(trainable_token_indices=[5]), "trainable_tokens_delta", "is missing"),
    "rows without trained tokens": Case(
        fields(trainable_token_indices=None), "trainable_tokens_delta", "trainable_token_indices", "tokens"
    ),
    "more tokens than rows": Case(fields(trainable_token_indices=[5, 6, 7]), "delta", "must be [3, 32]", "tokens"),
    "tokens beyond the vocabulary": Case(
        fields(trainable_token_indices=[5, 96]), "trainable_token_indices", "has 96 tokens", "tokens"
    ),
    "an embedding not targeted": Case(fields(target_modules=["q_proj"]), "lora_embedding_A", "", "embedding"),
    "DoRA and an invocation": Case(fields(use_dora=True), "use_dora", "exclude each other", "alora"),
    "DoRA and biases": Case(fields(lora_bias=True), "lora_bias", "exclude each other", "dora"),
    "DoRA and blocks": Case(fields(use_bdlora={"nblocks": 2}), "use_dora", "exclude each other", "dora"),
    "an invocation and a saved head": Case(
        fields(alora_invocation_tokens=[7]), "modules_to_save", "before the invocation", "saved"
    ),
    "an invocation beyond the vocabulary": Case(
        fields(alora_invocation_tokens=[7, 96]), "alora_invocation_tokens", "has 96 tokens", "alora"
    ),
    "DoRA on experts": Case(fields(use_dora=True), "use_dora", "target_parameters", "experts"),
    "experts that are not there": Case(fields(target_parameters=["experts.w9"]), "lora_A.weight", "mixture", "experts"),
    "experts not named": Case(fields(target_parameters=["experts.down_proj"]), "lora_A.weight", "mixture", "experts"),
    "unequal blocks": Case(
        fields(use_bdlora={"target_modules_bd_a": ["o_proj"], "target_modules_bd_b": ["q_proj"], "nblocks": 3}),
        "use_bdlora",
        "unequal blocks",
        "blocks",
    ),
    "blocks on both sides": Case(
        fields(use_bdlora={"target_modules_bd_a": ["q_"], "target_modules_bd_b": ["q_proj"], "nblocks": 4}),
        "use_bdlora",
        "both A and B",
        "blocks",
    ),
    "dense where there are blocks": Case(fields(use_bdlora=None), "weight", "must be", "blocks"),
    "half of the layers": Case(fields(layers_to_transform=[0]), "layers.1.self_attn.q_proj.lora_A.weight"),
    "a layer's tensors missing": Case(removed("layers.1.self_attn.v_proj.lora_B.weight"), "v_proj.lora_B.weight"),
}
