"""What a value is: PrimitiveType, Shape, Layout, index arithmetic, Literal."""
