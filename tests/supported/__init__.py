"""What runtimes of devices take: models of one op, and the tables that are made of the verdicts on them."""
