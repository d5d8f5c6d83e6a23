from __future__ import annotations

from gpubench_plugin.launchers import secondary
from gpubench_plugin.launchers.torchrun import plugin


def test_difference_names_what_each_rank_has_and_lacks() -> None:
    """The user sees which tests depend on the rank, and on which."""
    root = ["a", "b", "c"]
    ranks = [root, ["a", "b", "c"], ["a", "c", "x"], ["c", "b", "a"]]

    message = plugin.difference_message([plugin.difference(ids, root) for ids in ranks])

    assert message == (
        "the ranks collected different benchmarks: 3 on rank 0, 3 on rank 2, 3 on rank 3; "
        "only rank 2 collected x; rank 2 did not collect b; "
        "rank 3 collected them in another order"
    )


def test_difference_stays_short() -> None:
    """However many ranks and tests differ, the first few are shown and the rest counted."""
    root = [f"test_{number:04}" for number in range(1000)]
    told = [plugin.difference(root, root)]
    told += [plugin.difference([], root) for _ in range(99)]

    message = plugin.difference_message(told)

    assert "rank 1 did not collect test_0000, test_0001, test_0002 and 997 more" in message
    assert message.endswith("; and 91 more ranks differ")
    assert len(message) < 2000
    assert len(str(told[1])) < 200


def test_digest_tells_order_and_content() -> None:
    """Equal only for the same tests in the same order."""
    digest = secondary.ids_hash(["a", "b"])

    assert digest == secondary.ids_hash(["a", "b"])
    assert digest not in {secondary.ids_hash(["b", "a"]), secondary.ids_hash(["a"])}
