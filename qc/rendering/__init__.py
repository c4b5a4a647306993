"""What qc tells: tables as such, and how a terminal, a page and a program read them."""
