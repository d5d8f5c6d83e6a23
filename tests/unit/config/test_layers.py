from __future__ import annotations

from gpubench_plugin.config.layers import Layer, merge, nested


def layers(*values: dict[str, object]) -> list[Layer]:
    return [Layer(source=f"layer {number}", values=each) for number, each in enumerate(values)]


def test_later_layers_win_key_by_key() -> None:
    """Mappings are merged at any depth, lists and plain values replaced; layers stay."""
    merged = merge(
        layers({"a": {"b": {"c": 1, "d": [1, 2]}}, "e": 1}, {"a": {"b": {"d": [3], "f": 2}}})
    )
    assert merged.values == {"a": {"b": {"c": 1, "d": [3], "f": 2}}, "e": 1}
    merged = merge(layers({"a": {"b": 1}}, {"a": {}}))
    assert (merged.values, merged.source(("a", "b"))) == ({"a": {"b": 1}}, "layer 0")
    first: dict[str, object] = {"a": {"b": 1}}
    merge(layers(first, {"a": {"c": 2}}))
    assert first == {"a": {"b": 1}}
    merged = merge(layers({"a": {"b": 1}}))
    assert [merged.get(key) for key in [("a", "b"), ("a", "c"), ("a", "b", "c")]] == [1, None, None]
    assert nested(("a", "b"), 1) == {"a": {"b": 1}}


def test_every_leaf_keeps_its_source() -> None:
    """The last layer that said it; of a mapping, all that said a part; none stale."""
    merged = merge(layers({"a": {"b": 1, "c": 1}}, {"a": {"c": 2}}, {"x": 1}))
    assert [merged.source(key) for key in [("a", "b"), ("a", "c"), ("a",), ("a", "no")]] == [
        "layer 0",
        "layer 1",
        "layer 0 and layer 1",
        "",
    ]
    merged = merge(layers({"a": {"b": 1}, "x": 1}, {"a": 2, "x": {"y": 3}}))
    assert (merged.values, merged.sources) == (
        {"a": 2, "x": {"y": 3}},
        {("a",): "layer 1", ("x", "y"): "layer 1"},
    )
    merged = merge(layers({"a": {"b": [1, 2]}}))
    assert merged.source(("a", "b", "1")) == "layer 0"
