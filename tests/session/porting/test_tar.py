from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshd.session.porting import tar
from dshd.session.porting.tar import BLOCK, END, Member, Reader, Wrong, header, padding


def archive(*members: tuple[str, bytes]) -> bytes:
    parts = [header(name, len(data), 0) + data + padding(len(data)) for name, data in members]
    return b"".join(parts) + END


def standard(*members: tarfile.TarInfo, format: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as made:
        for member in members:
            made.addfile(member, io.BytesIO(bytes(member.size)))
    return out.getvalue()


def info(name: str, type: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = type
    for key, value in more.items():
        setattr(made, key, value)
    return made


def members(data: bytes) -> list[Member]:
    found, reader, at = [], Reader(), 0
    while (member := reader.member(data[at : at + BLOCK])) is not None:
        found.append(member)
        at += BLOCK + member.size + member.padding
    return found


NAMES = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9.-]*[a-z0-9]){0,3}", fullmatch=True).filter(
    lambda name: len(name) <= 90
)


@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5))
def test_what_is_written_any_tar_reads_and_so_do_we(files: dict[str, bytes]) -> None:
    data = archive(*files.items())
    with tarfile.open(fileobj=io.BytesIO(data)) as read:
        for name, content in files.items():
            file = read.extractfile(name)
            assert file is not None
            assert file.read() == content
    assert members(data) == [Member(name, len(content)) for name, content in files.items()]


def test_what_another_tar_made_of_the_same_files_is_read() -> None:
    made = [info("s1", tarfile.DIRTYPE), info("./s1/log.jsonl", size=7), info("s1/attachments/x", size=513)]
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
        assert members(standard(*made, format=format)) == [
            Member("s1", 0, directory=True), Member("s1/log.jsonl", 7), Member("s1/attachments/x", 513),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "type", "why"),
    [
        ("s1/log.jsonl", tarfile.SYMTYPE, "s1/log.jsonl in it is a symbolic link"),
        ("s1/log.jsonl", tarfile.LNKTYPE, "a hard link"),
        ("s1/log.jsonl", tarfile.CHRTYPE, "a device"),
        ("s1/log.jsonl", tarfile.BLKTYPE, "a device"),
        ("s1/log.jsonl", tarfile.FIFOTYPE, "a pipe"),
        ("s1/log.jsonl", tarfile.GNUTYPE_SPARSE, "a sparse file"),
        ("s1/log.jsonl", b"Z", "no file"),
        ("../log.jsonl", tarfile.REGTYPE, "a file named '../log.jsonl'"),
        ("s1/../../x", tarfile.REGTYPE, "a file named"),
        ("/etc/passwd", tarfile.REGTYPE, "a file named '/etc/passwd'"),
        ("s1//x", tarfile.REGTYPE, "a file named"),
        ("s1/a\nb", tarfile.REGTYPE, "a file named"),
        ("s1/a\x1b[31m", tarfile.REGTYPE, "a file named"),
        ("..", tarfile.DIRTYPE, "a file named"),
    ],
)
def test_what_could_reach_outside_or_is_no_file_is_refused(name: str, type: bytes, why: str) -> None:
    with pytest.raises(Wrong) as refused:
        members(standard(info(name, type)))
    assert why in str(refused.value)


def test_headers_that_change_others_are_refused() -> None:
    long = "s1/" + "x" * 200
    for format, why in ((tarfile.GNU_FORMAT, "a long name"), (tarfile.PAX_FORMAT, "a pax header")):
        with pytest.raises(Wrong, match=why):
            members(standard(info(long), format=format))


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(Wrong, match="s1/a twice"):
        members(archive(("s1/a", b"1"), ("s1/a", b"2")))
    with pytest.raises(Wrong, match="s1/a twice"):
        members(standard(info("s1/a"), info("./s1/a")))


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "MOST_MEMBERS", 2)
    assert len(members(archive(("a", b""), ("b", b"")))) == 2
    with pytest.raises(Wrong, match="more than 2 files"):
        members(archive(("a", b""), ("b", b""), ("c", b"")))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no tar"),
        (b"hello", "no tar"),
        (b'{"seq":0}' * 100, "no tar"),
        (archive(("a", b"1"))[: 2 * BLOCK], "cut off"),
        (archive(("a", b"1"), ("b", b"2"))[: 2 * BLOCK + 100], "cut off"),
        (archive(("a", b""))[:BLOCK] + b"x" * BLOCK, "damaged"),
    ],
)
def test_what_is_no_whole_archive_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(Wrong, match=why):
        members(data)


@pytest.mark.parametrize(
    ("magic", "command"), [(b"\x1f\x8b", "gunzip"), (b"\x28\xb5\x2f\xfd", "zstd -d"), (b"BZh9", "bunzip2")]
)
def test_a_compressed_one_says_what_unpacks_it(magic: bytes, command: str) -> None:
    with pytest.raises(Wrong, match="compressed") as refused:
        members(magic.ljust(BLOCK, b"x"))
    assert refused.value.unpack == command


def test_a_header_with_one_flipped_bit_is_refused() -> None:
    data = archive(("s1/log.jsonl", b""), ("s1/a", b""))
    for at in range(BLOCK, 2 * BLOCK, 7):
        bad = bytearray(data)
        bad[at] ^= 1
        with pytest.raises(Wrong):
            members(bytes(bad))


def test_a_file_over_8_GiB_is_refused_when_it_is_written() -> None:
    with pytest.raises(Wrong, match="more than a tar can hold"):
        header("s1/log.jsonl", 8 << 30, 0)
