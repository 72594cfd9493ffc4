"""The types of values and the values themselves: PrimitiveType, Shape, Layout, index arithmetic, Literal."""
