"""`fetch`: what an address on the web answers, as text, for a model that must not be led astray.

A call's way: the address is read (`dshd.tools.urls`), the rules decide about its host (`policy`), `addresses`
says which of the machines behind a name nobody reaches by chance, `way` connects to just what was checked,
`body` keeps what comes within bounds, `page` makes text of it, `readable` (a process of its own) of HTML.
`tool` does this for each hop of a redirect.
"""
