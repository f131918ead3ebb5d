"""Strategies and frameworks: the tables of contracts and the code behind them."""

from __future__ import annotations

import pytest

from driple.contracts.errors import UnknownName
from driple.contracts.run_spec import Workload
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, SERVER, STRATEGIES, WORKER, default_strategy
from driple.workloads.frameworks import registry as frameworks
from driple.workloads.strategies import registry as strategies


def test_every_strategy_and_framework_of_the_tables_has_code_and_no_other_has() -> None:
    declared = {
        (name, framework, BACKENDS[backend].library)
        for name, entry in STRATEGIES.items()
        for framework, backends in entry.frameworks.items()
        for backend in backends
    }
    assert set(strategies.STRATEGIES) == declared
    assert list(frameworks.FRAMEWORKS) == list(FRAMEWORKS)
    for entry in STRATEGIES.values():
        assert set(entry.frameworks) <= set(FRAMEWORKS)
        assert WORKER in entry.roles


def test_a_strategy_is_found_by_the_workload() -> None:
    workload = Workload("resnet20", "cifar10", 32)
    assert strategies.strategy_of(workload).name == "ps"
    object.__setattr__(workload, "framework", "abacus")
    with pytest.raises(UnknownName, match="strategy for abacus"):
        strategies.strategy_of(workload)
    with pytest.raises(UnknownName, match="framework 'abacus'.*tensorflow"):
        frameworks.framework_of("abacus")


@pytest.mark.parametrize("servers", [0, 1, 5])
def test_the_default_strategy_fits_the_servers(servers: int) -> None:
    default = default_strategy(servers)
    assert (SERVER in STRATEGIES[default].roles) == (servers > 0)
    for entry in STRATEGIES.values():
        assert (entry.fault(servers) is None) == (entry.has_servers == bool(servers))


def test_errors_are_explained_in_one_line() -> None:
    tensorflow = frameworks.framework_of("tensorflow")
    nested = ValueError("2 root error(s) found.\n  (0) \n From /job:worker: \n  OOM when allocating 5 GB\nmore")
    assert tensorflow.explain(nested) == "ValueError: OOM when allocating 5 GB"
    assert tensorflow.explain(ValueError("")) == "ValueError: no more is known"
    assert tensorflow.explain(MemoryError("none left")).startswith("out of memory: this batch does not fit; ")
    assert tensorflow.is_out_of_memory(MemoryError()) and not tensorflow.is_out_of_memory(nested)


def test_tasks_do_not_use_a_web_proxy_and_see_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in ("CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL", "http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "7")
    tensorflow = frameworks.framework_of("tensorflow")
    tensorflow.prepare_environment(3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "7"  # the user's choice stays
    assert not {"http_proxy", "HTTPS_PROXY"} & set(os.environ)
    tensorflow.prepare_environment(None)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
