"""The whole program, both clusters and all that can go wrong between them, in schedules that a seed decides."""
