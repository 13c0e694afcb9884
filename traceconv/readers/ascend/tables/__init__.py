"""Tables beside or in place of a timeline."""
