"""What passes find out about programs: costs, roundings, orders of comparators."""
