"""From kernels to phases: classes, launches, steps, alignment, phases."""
