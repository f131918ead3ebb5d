"""driple-predict: the 12 metrics of a model that has never run."""

from __future__ import annotations

from driple.contracts.command import planned_command

main = planned_command(
    prog="driple-predict",
    description="Predict the 12 burst-idle-burst metrics of a training job that has never run.",
    example="driple-predict --setting cpu-p2w2-1g resnet56 --batch-size 64 --update sync",
)
