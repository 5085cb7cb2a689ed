"""dshd: a workstation daemon that runs LLM agent sessions in the background."""

__version__ = "0.1.0"
