"""One reader a log format, the workload generator, the burst audit."""
