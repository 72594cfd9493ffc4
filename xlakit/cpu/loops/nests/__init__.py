"""The kinds of loop nests: element-wise, reductions of rows and of columns, transposes, concatenations."""
