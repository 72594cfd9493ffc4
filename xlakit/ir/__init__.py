"""What a program is: Instruction, Computation, Module, and the verifier."""
