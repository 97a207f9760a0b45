"""Data parallel in lockstep: cores that step together because their model's collectives need every rank.

A wave is the time from the first request to the moment when no rank has any left. In a wave all ranks step, those
without work on a dummy batch; between two waves all of them wait. The coordinator is a process beside the cores that
wakes the ranks and tells the front ends which wave it is.
"""
