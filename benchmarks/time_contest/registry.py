"""All contestants by name. A new one is a file and an entry here."""

from __future__ import annotations

from pathlib import Path

import driple.inspector.time
from time_contest import (
    cherrypick,
    ernest,
    ernest_own,
    habitat,
    job_runs,
    justus,
    ours,
    paleo,
    predict_ddl,
    setting_mean,
    simulator_alone,
    support_vectors,
    trees,
)
from time_contest.contestant import Contestant, OwnRuns, Reused

OURS, OURS_REFITTED, OUR_LAWS = "ours", "ours-refitted", "ours-laws"
ERNEST_REUSED = ("ernest-absolute", "ernest-relative", "ernest-pooled")
ERNEST_OWN = ("ernest-runs", "ernest-design")


def contestants(kept: Path) -> dict[str, Contestant]:
    """Every contestant. The trained graph encoder is kept in a folder."""
    own_code = (*_files("ours"), Path(str(driple.inspector.time.__file__)).parent)
    ghn: tuple[str, ...] = ("predict_ddl", "support_vectors", "features", "encoder_graphs", "generated_graphs")
    ghn = (*ghn, "graph_encoder", "graph_writer", "justus", "pretraining")
    ernest_source = "Venkataraman et al., NSDI 2016; github.com/amplab/ernest"
    ddl_source = "Assogba et al., IEEE CLUSTER 2023; encoder after Knyazev et al., NeurIPS 2021"
    return {
        "mean": Reused(
            title="mean of the setting",
            source="-",
            learn=setting_mean.learn,
            code=_files("setting_mean", "places"),
        ),
        ERNEST_REUSED[0]: Reused(
            title="Ernest, reused, as coded",
            source=ernest_source,
            learn=ernest.learn_absolute,
            code=_files("ernest"),
        ),
        ERNEST_REUSED[1]: Reused(
            title="Ernest, reused, relative errors",
            source=ernest_source,
            learn=ernest.learn_relative,
            code=_files("ernest", "relative_lstsq"),
        ),
        ERNEST_REUSED[2]: Reused(
            title="Ernest, reused, relative errors, all machines",
            source=ernest_source,
            learn=ernest.learn_pooled,
            code=_files("ernest", "relative_lstsq"),
        ),
        ERNEST_OWN[0]: OwnRuns(
            title="Ernest, up to 5 runs of the job at random",
            source=ernest_source,
            choose=job_runs.random_runs,
            learn=ernest_own.learn,
            code=_files("ernest", "ernest_own", "job_runs"),
        ),
        ERNEST_OWN[1]: OwnRuns(
            title="Ernest, up to 5 runs of the job by its design",
            source=ernest_source,
            choose=ernest_own.designed_runs,
            learn=ernest_own.learn,
            code=_files("ernest", "ernest_own", "job_runs", "experiment_design"),
        ),
        "cherrypick": OwnRuns(
            title="CherryPick's Gaussian process, up to 5 runs of the job",
            source="Alipourfard et al., NSDI 2017",
            choose=job_runs.random_runs,
            learn=cherrypick.learn,
            code=_files("cherrypick", "job_runs"),
        ),
        "habitat": OwnRuns(
            title="Habitat-like scaling of one run elsewhere",
            source="Yu et al., USENIX ATC 2021; github.com/geoffxy/habitat",
            choose=habitat.origin,
            learn=habitat.learn,
            code=_files("habitat", "job_runs", "relative_lstsq", "places"),
        ),
        "paleo-1": Reused(
            title="Paleo-like, one rate and the link",
            source="Qi, Sparks, Talwalkar, ICLR 2017",
            learn=paleo.learn_one_rate,
            code=_files("paleo", "features", "places"),
        ),
        "paleo-3": Reused(
            title="Paleo-like, three rates",
            source="Qi, Sparks, Talwalkar, ICLR 2017",
            learn=paleo.learn_three_rates,
            code=_files("paleo", "features", "places", "relative_lstsq"),
        ),
        "justus": Reused(
            title="Justus-like network on layer features",
            source="Justus et al., IEEE Big Data 2018",
            learn=justus.learn,
            code=_files("justus", "features"),
        ),
        "trees": Reused(
            title="gradient-boosted trees",
            source="scikit-learn",
            learn=trees.learn,
            code=_files("trees", "features"),
        ),
        "totals-svr": Reused(
            title="totals of the graph, support vectors",
            source="scikit-learn",
            learn=support_vectors.learn_totals,
            code=_files("support_vectors", "features"),
        ),
        **{
            f"predictddl-{how}": Reused(
                title=f"PredictDDL's recipe, {title}",
                source=ddl_source,
                learn=predict_ddl.learner(kept, how),
                code=_files(*ghn),
            )
            for how, title in (("ridge", "ridge"), ("svr", "support vectors"), ("mlp", "network"))
        },
        "predictddl-totals": Reused(
            title="PredictDDL's recipe and totals, support vectors",
            source=ddl_source,
            learn=predict_ddl.learner(kept, "svr", totals=True),
            code=_files(*ghn),
        ),
        "simulator": Reused(
            title="simulator as shipped, a factor for each setting",
            source="docs/concepts/simulator.md",
            learn=simulator_alone.learn_shipped,
            code=_files("simulator_alone", "places"),
            simulates=True,
        ),
        "simulator-refitted": Reused(
            title="simulator, refitted without the family",
            source="benchmarks/simulator_cpu.py",
            learn=simulator_alone.learn_refitted,
            code=(*_files("simulator_alone"), simulator_alone.REFITTED),
            simulates=True,
        ),
        OURS: Reused(
            title="ours",
            source="inspector/time/time_model.py",
            learn=ours.learn,
            code=own_code,
            simulates=True,
        ),
        OURS_REFITTED: Reused(
            title="ours, simulator refitted without the family",
            source="inspector/time/time_model.py",
            learn=ours.learn_refitted,
            code=(*own_code, *_files("simulator_alone"), simulator_alone.REFITTED),
            simulates=True,
        ),
        OUR_LAWS: Reused(
            title="ours, without simulation",
            source="inspector/time/time_model.py",
            learn=ours.learn_laws,
            code=own_code,
        ),
    }


def _files(*names: str) -> tuple[Path, ...]:
    return tuple(Path(__file__).with_name(f"{name}.py") for name in names)
