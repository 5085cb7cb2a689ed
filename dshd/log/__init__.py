"""The session log: one append-only file per session, and the only truth about it.

This is the format's specification. The modules, in the order of a line's life: `vocabulary` (the types
that this version knows), `codec` (an event and its bytes), `writer` (batches to disk, in `threads`),
`disk` (what a disk promises), `reader` and `survey` (bytes to good events), `recovery` (opening),
`repair`, `fault` (the note of a failed disk), `witness` (what was durable once, as other files tell),
`sealed` (the form of those files), `aside` (faulty ones), `there` (what stands where a log should),
`store` (the directories), `lock` (one daemon each), `memory` (a disk for tests, that fails on request).

The file
    ``STATE/sessions/<id>/log.jsonl``, 0600 in a directory 0700. UTF-8. One event per line; a line
    ends with byte 0x0A and nothing else ends one (U+2028 and its kin are text). No line is over
    64 MiB. The file only grows: what is written stays, but for a tail that nobody was told of.

A line
    is a JSON object without a raw newline in it::

        {"seq":0,"time":1796040000123,"type":"session/header","data":{...},"crc":"9ab3f01c"}

    ========== =============================================================================
    key        value
    ========== =============================================================================
    seq        0 for the first line, then the one before plus 1 (the only jump: ``log/gap``)
    time       Unix ms when the event was decided; may go backwards
    type       ``group/word``
    data       an object, see below
    surface    optional: ``"append"``, or ``{"replace": [first, last]}`` (seqs, inclusive)
    sources    optional: a list of seqs
    ignorable  optional: ``true``: who doesn't know the type may pass over it
    synced     optional: K; all events up to seq K were durable when this line was written.
               On the first line of each write
    crc        always last: eight lower-case hexadecimal digits of the CRC-32 (zlib) of all
               bytes of the line before ``,"crc":"``
    ========== =============================================================================

    in this order. The last 18 bytes before the newline are therefore ``,"crc":"xxxxxxxx"}``, and a
    line can be checked without parsing it. Readers ignore keys that they don't know.

Data
    is *lossless* JSON: finite numbers, integers within ±2^53, string keys, at most 100 levels, no
    lone surrogates. What isn't, is refused before it is written; incoming lone surrogates become
    U+FFFD before.

Line 0
    has the type ``session/header`` and the format's version in ``data.version``: 1. It is durable
    before the session's directory has its name. With another version, or an event of a type that
    the reader doesn't know and that isn't ``ignorable``, a log can be shown and exported, not
    continued. A newer dshd never rewrites an old log.

Good and bad lines
    A line is good if it is whole, its checksum is right and its seq is the one that is due. From
    the first bad line on, either nothing was ever acknowledged (the torn tail: moved to
    ``log.torn-<seq>`` and cut, at the next opening), or a later good line proves by its ``synced``
    that the bad one was on disk once: then the log is *damaged*. See `dshd.log.survey`. So it is if it
    ends before what was durable once, as files beside it tell (`dshd.log.witness`).

``log/gap {first, last, file}``
    Written by a repair in the place of events that can't be read any more. Its seq is ``first``,
    the next line's is ``last`` + 1; the old bytes are in ``file``, beside the log. There may have been
    fewer events: no seq, message or turn is given a number that one of them may have had.

``log/repaired {file, regions}``
    The end of a repaired log. What refers into a gap is to be ignored, what was open at it closed.

Beside the log
    ``log.torn-N`` (a tail that was cut at seq N), ``log.damaged-N`` (the whole log as it was before
    a repair), ``log.foreign`` (a file that somebody had put in the log's place), ``log.faulted``
    (the disk failed; gone when the session was reopened). Of these only the last is ever read again.

    Derived, and ignored unless they fit, so that they may be deleted or copied at any time (but for what
    they tell of a log that was cut: `dshd.log.witness`):
    ``checkpoint.json``, ``ended.jsonl``, ``ended.index`` (`dshd.session.disk.checkpoint`), ``view.json``, and
    for all sessions ``STATE/views.jsonl`` (`dshd.session.registry.index`).
"""
