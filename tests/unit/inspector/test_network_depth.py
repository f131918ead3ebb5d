from __future__ import annotations

import pytest

from driple.contracts.errors import BadInput
from driple.inspector.network.depth import POLICIES, depends_on_graph, depth


@pytest.mark.parametrize(
    ("policy", "of_1", "of_2", "of_20", "of_100"),
    [
        ("N", 1, 2, 20, 100),
        ("N/2", 1, 1, 10, 50),
        ("N/3", 1, 1, 6, 33),
        ("log2N", 1, 1, 4, 6),
        ("2log2N", 1, 2, 8, 13),
        ("3log2N", 1, 3, 12, 19),
        ("4log2N", 1, 4, 17, 26),
        ("log10N", 1, 1, 1, 2),
        ("sqrtN", 1, 1, 4, 10),
        ("3sqrtN", 3, 4, 13, 30),
        ("7", 7, 7, 7, 7),
    ],
)
def test_steps(policy: str, of_1: int, of_2: int, of_20: int, of_100: int) -> None:
    assert [depth(policy, nodes) for nodes in (1, 2, 20, 100)] == [of_1, of_2, of_20, of_100]
    assert depends_on_graph(policy) == (policy in POLICIES)


def test_spaces_do_not_matter() -> None:
    assert depth("3 sqrt N", 100) == 30
    assert depends_on_graph("log2 N")


def test_powers_of_two_and_ten_are_exact() -> None:
    assert [depth("log2N", 2**k) for k in range(1, 20)] == list(range(1, 20))
    assert [depth("log10N", 10**k) for k in range(1, 10)] == list(range(1, 10))


@pytest.mark.parametrize("policy", ["0", "-1", "2.5", "", "N/4", "ln N", "²", "10001", "9" * 30])
def test_others_are_refused_in_one_line(policy: str) -> None:
    with pytest.raises(BadInput, match="depth: unknown") as caught:
        depth(policy, 10)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(BadInput, match="did you mean 'sqrtN'"):
        depth("sqrtn", 10)
