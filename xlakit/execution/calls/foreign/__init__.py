"""What the custom calls of other backends compute: those that optimized programs of XLA's GPU and CPU backends have."""
