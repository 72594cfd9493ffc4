"""Programs that commands of the benchmark run in processes of their own."""
