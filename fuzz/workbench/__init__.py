"""The workbench's verbs on programs of JAX: faults seeded into backends, and dumps of all kinds."""
