"""Sources, sinks and file storage of the pipeline."""
