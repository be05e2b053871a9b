"""Join graphs: reduction, canonical form, templates and variable pairs."""
