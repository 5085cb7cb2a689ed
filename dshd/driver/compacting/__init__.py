"""Making a conversation smaller: `compacting`, before a step or on an overflow, and `maintenance`, between
turns, because somebody asked.
"""
