"""Programs of several devices: their collectives, alone and in loops, branches and copies of one computation."""
