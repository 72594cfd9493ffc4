"""What a run of the benchmark says: tables, JSON, charts."""
