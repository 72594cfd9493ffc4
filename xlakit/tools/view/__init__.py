"""The viewer: one HTML file with a program after every pass, its costs and its memory."""
