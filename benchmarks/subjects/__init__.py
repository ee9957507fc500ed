"""The clients that are measured, each in the ways a program would use it."""
