"""What tests share: commands, tiny models, servers, comparisons; and here the check of signatures while tests run."""

from beartype import BeartypeConf, beartype

# For pytest's --jaxtyping-packages. An int is a float where a float is wanted, as type checkers have it.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
