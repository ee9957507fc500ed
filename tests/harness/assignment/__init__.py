"""Groups to try assignors on, what is said of an outcome, and Kafka's assignors to compare with."""

from assignment.groups import (
    LARGE,
    SMALL,
    Group,
    Regrouping,
    Size,
    carried,
    random_group,
    random_regrouping,
)
from assignment.java import AssignorOracle, JavaError
from assignment.judgement import Judgement, judged, settled

__all__ = [
    "AssignorOracle",
    "Group",
    "JavaError",
    "Judgement",
    "LARGE",
    "Regrouping",
    "SMALL",
    "Size",
    "carried",
    "judged",
    "random_group",
    "random_regrouping",
    "settled",
]
