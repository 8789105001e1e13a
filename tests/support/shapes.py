"""The checker of every signature's shapes and types while tests run, for pytest's --jaxtyping-packages."""

from beartype import BeartypeConf, beartype

# An int is a float where a float is wanted, as type checkers have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
