"""Plugins and hooks: `gates`, who is asked at each gate, and `waterfall`, how: one after the other, each with
what those before it made of it. `shape`: answers that must fit a schema.
"""
