"""Options, output and progress that several commands share."""
