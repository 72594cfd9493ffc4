"""The memory plan of a program, as a value: its values, their live ranges, and the buffer slice of each."""
