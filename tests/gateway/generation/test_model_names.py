import pytest

from loragate.gateway.errors import NotFound
from loragate.gateway.generation.resolver import AdapterName, parse_adapter_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("poet", AdapterName("poet")),
        ("poet:3", AdapterName("poet", version=3)),
        ("poet@canary", AdapterName("poet", alias="canary")),
        ("a.b-c_d:10", AdapterName("a.b-c_d", version=10)),
    ],
)
def test_grammar(model: str, name: AdapterName) -> None:
    assert parse_adapter_name(model) == name


@pytest.mark.parametrize(
    "model",
    ["", " ", "poet:", "poet@", "poet:0", "poet:01", "poet:-1", "poet:x", "poet:1@a", "poet@a:1", "@a", ":1", "a/b",
     "poet\n", "poet:" + "9" * 30, "poet:١", "../x", "ft:a:b:c"],
)  # fmt: skip
def test_all_other_names_are_not_found(model: str) -> None:
    with pytest.raises(NotFound) as rejected:
        parse_adapter_name(model)
    assert (rejected.value.code, rejected.value.param) == ("model_not_found", "model")
