"""Programs of fields for which there are many small libraries: a file has those of several."""
