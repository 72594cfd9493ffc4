"""The viewer: a program, what every pass made of it, its costs and its memory, as one HTML file."""
