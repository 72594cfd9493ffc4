"""What a program is: Instruction, Computation, Module, and the traits of operations."""
