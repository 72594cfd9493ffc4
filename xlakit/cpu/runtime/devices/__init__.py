"""The devices of a program in native code: how they run together, and how they meet."""
