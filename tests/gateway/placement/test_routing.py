from loragate.gateway.placement.routing import PREFIX_SLACK, choose

LOADS = {"a": 0.5, "b": 0.2, "c": 0.2}


def test_the_least_loaded_member_serves() -> None:
    assert choose(["a", "b"], LOADS) == "b"


def test_the_earlier_one_of_equals_serves() -> None:
    assert choose(["c", "b"], LOADS) == "c"
    assert choose(["b", "c"], LOADS) == "b"


def test_a_member_without_the_bytes_waits_for_them() -> None:
    assert choose(["a", "b"], LOADS, has_bytes=lambda engine: engine == "a") == "a"


def test_where_no_member_has_the_bytes_they_are_fetched_once() -> None:
    assert choose(["a", "b"], LOADS, has_bytes=lambda engine: False) == "a"


def test_a_cached_prefix_outweighs_a_small_difference_of_load() -> None:
    near = {"a": 0.2 + PREFIX_SLACK, "b": 0.2}
    assert choose(["a", "b"], near, cached={"a"}) == "a"
    assert choose(["a", "b"], LOADS, cached={"a"}) == "b"  # not a large one
