"""Groups for tests of assignors, the measures of an assignment, and Kafka's own assignors."""

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
