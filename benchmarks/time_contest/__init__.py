"""The contest of predictors of step times: a file for each contestant, and what they share.

contestant.py says what a contestant is, registry.py lists them, folds.py splits the rows, contest.py lets every
contestant predict every fold, and benchmarks/time_results.py is the command.
"""
