"""Programs on large arrays: kernels have several tasks, blocks and rests there."""
