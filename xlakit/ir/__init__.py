"""HLO as data structures: Instruction, Computation, HloModule, attributes, and the traits of operations."""
