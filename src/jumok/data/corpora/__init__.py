"""Built-in corpora: one value rendered by CLDR in two languages, fully determined and unlimited."""
