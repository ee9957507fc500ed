"""A named tuple that the garbage collector does not track; see plain_tuple.h.

The type is written in C. Its methods and properties are those of the Python class, which
`untracked_tuple` copies, so that there is one definition of them.
"""


cdef extern from "plain_tuple_type.h":
    AiokTuples aiok_tuples
    object aiok_plain_tuple_type()


def _make(cls, iterable):
    """Make a new RecordMetadata object from a sequence or iterable"""
    fields = tuple(iterable)
    if len(fields) != 4:
        raise TypeError(f"Expected 4 arguments, got {len(fields)}")
    return cls(*fields)


def untracked_tuple(kind):
    """Return a native class with the methods of `kind`, the Python class."""
    made = aiok_plain_tuple_type()
    hidden = ("__new__", "__slots__", "__dict__", "__weakref__", "_make", "_answer")
    for each in (kind.__base__, kind):
        for name, content in vars(each).items():
            if name not in hidden:
                setattr(made, name, content)
    made._make = classmethod(_make)
    return made


metadata_spares = &aiok_tuples
