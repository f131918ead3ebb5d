from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.errors import BadSetting
from driple.contracts.setting import GRAMMAR, PUBLISHED, Published, Setting

settings = st.builds(
    Setting,
    device=st.sampled_from(("cpu", "v100", "2080ti", "titanrtx", "a100", "h100nvl")),
    servers=st.integers(0, 64),
    workers=st.integers(1, 64),
    network=st.one_of(st.just("pcie"), st.from_regex(r"\A[1-9][0-9]{0,2}[mg]\Z")),
)


@given(settings)
def test_text_form_reads_back(setting: Setting) -> None:
    assert Setting.parse(str(setting)) == setting


@given(settings, st.randoms(use_true_random=False))
def test_case_and_spaces_around_do_not_matter(setting: Setting, random: object) -> None:
    text = "".join(getattr(random, "choice")((c.upper(), c.lower())) for c in str(setting))  # noqa: B009
    assert Setting.parse(f" {text}\n") == setting


@given(st.text(max_size=40))
def test_any_text_is_a_setting_or_an_error_with_grammar_and_nearest(text: str) -> None:
    try:
        setting = Setting.parse(text)
    except BadSetting as error:
        assert GRAMMAR in str(error)
        assert re.search(r"the nearest known is '[a-z0-9-]+'", str(error))
        assert "\n" not in str(error)
    else:
        assert Setting.parse(str(setting)) == setting


def file_names(number: int, published: Published) -> list[str]:
    """The ways in which a published name is known to have become a file name: slash gone, dash or underscore."""
    flat = published.name.replace("/", "")
    head, _, network = flat.rpartition("-")
    return [
        f"{number}_{flat}.pkl",
        f"{number}_{head}_{network}.pkl",
        f"{number}_{head.replace('-', '_')}_{network}.pkl",
    ]


@pytest.mark.parametrize(("number", "published"), list(enumerate(PUBLISHED, 1)), ids=[p.name for p in PUBLISHED])
def test_published_names_and_file_names(number: int, published: Published) -> None:
    device, topology, network = re.fullmatch(r"(\w+)-(P\d+w\d+)/h[oe]-(\w+)", published.name).groups()  # type: ignore[union-attr]
    expected = f"{device}-{topology}-{network}".lower()
    for text in (published.name, expected, *file_names(number, published)):
        assert str(Setting.parse(text)) == expected
    assert str(published.setting) == expected


def test_fourteen_different_settings_are_published() -> None:
    assert len({published.setting for published in PUBLISHED}) == 14
    assert sorted(p.machines for p in PUBLISHED) == [1] * 6 + [2] * 4 + [5] * 4


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("V100-P1w2/ho-PCIe", Setting("v100", 1, 2, "pcie")),
        ("1_V100-P1w2ho_PCIe.pkl", Setting("v100", 1, 2, "pcie")),
        ("8_TitanRTX-P2w2he-40G.pkl", Setting("titanrtx", 2, 2, "40g")),
        ("Titan RTX-PS4/w4/hetero-40 GbE", Setting("titanrtx", 4, 4, "40g")),
        ("cpu-p0w2-100m", Setting("cpu", 0, 2, "100m")),
        ("2080 Ti-P1w2/ho-PCIe", Setting("2080ti", 1, 2, "pcie")),
        ("cpu-p1w2-1000m", Setting("cpu", 1, 2, "1g")),
        ("cpu-p1w2-40000Mbit", Setting("cpu", 1, 2, "40g")),
    ],
)
def test_spellings(text: str, setting: Setting) -> None:
    assert Setting.parse(text) == setting


@pytest.mark.parametrize(
    "text",
    [
        "", "v100", "v100-p1w0-pcie", "v100-p1w2", "v100-p1w2-", "v100-p1w2-0g", "v100-p1w2-10t", "-p1w2-1g",
        "123-p1w2-1g", "v100-p1w2-pcie-more", "v100-p1w1025-1g", "v100-p1w²-1g", "../x-p1w2-1g", "cpu-p5w101g",
        "a-p1w" + "1" * 100_000,
        "v100-p1w" + "9" * 5000 + "-1g",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        Setting.parse(text)


def test_error_names_the_nearest() -> None:
    with pytest.raises(BadSetting, match="the nearest known is '2080ti-p2w2-40g'"):
        Setting.parse("2080Ti-P2w2/he-40Q")


def test_tasks_and_link() -> None:
    setting = Setting.parse("cpu-p1w2-100m")
    assert setting.tasks == ("ps:0", "worker:0", "worker:1")
    assert (setting.link_mbit, setting.one_machine) == (100, False)
    assert (Setting.parse("v100-p1w2-pcie").link_mbit, Setting.parse("v100-p1w2-40g").link_mbit) == (None, 40000)
