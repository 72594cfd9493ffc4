"""What writes compiled programs to files, and what checks them while they run."""
