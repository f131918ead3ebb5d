"""The zoo: each architecture in few lines, and the table that finds it by name."""
