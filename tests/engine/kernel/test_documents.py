"""Documents that are read in C are those that are read in Python."""

from __future__ import annotations

import gc
from random import Random

import pytest

from sapwood.engine.kernel.kernel_automaton import _UNTESTED
from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message, read_document
from sapwood.errors import MessageError
from tests.engine.kernel.test_readers import resident_bytes
from tests.support import shared_data
from tests.support.cases.reader_messages import READ
from tests.support.compiled_kernel import compiled_kernel
from tests.support.generators.message_mutations import mutants, random_message, real_messages
from tests.support.requirements import FULL

compiled_kernel()
ROUNDS = 50 if FULL else 4
MUTANTS = 1_000
COLUMNS = (
    "names",
    "parents",
    "ends",
    "attributes",
    "texts",
    "text_parents",
    "text_after",
    "text_starts",
    "text_ends",
    "text_offsets",
    "declarations",
    "source",
    "verbatim",
    "depths",
)


def read_both(
    data: bytes | str, with_text: bool, with_source: bool, tokenizer: bool, limits: Limits
) -> tuple[Document, Document] | None:
    """Return the document from C and the one from Python; None if both refuse the message alike."""
    try:
        expected = read_document(Message(data), limits, _UNTESTED, with_text, with_source)
    except MessageError as refusal:
        with pytest.raises(MessageError) as raised:
            read_nodes(Message(data), limits, _UNTESTED, with_text, with_source, tokenizer=tokenizer)
        assert str(raised.value) == str(refusal)
        return None
    return read_nodes(Message(data), limits, _UNTESTED, with_text, with_source, tokenizer=tokenizer), expected


def assert_same_document(
    data: bytes | str, with_text: bool, with_source: bool, tokenizer: bool, limits: Limits | None = None
) -> bool:
    """Return whether the message is read in C, and fail unless it is read as in Python."""
    both = read_both(data, with_text, with_source, tokenizer, limits or Limits())
    if both is None:
        return False
    document, expected = both
    assert len(document) == len(expected)
    for column in COLUMNS:
        assert getattr(document, column) == getattr(expected, column), column
    if with_source:
        assert document.spans == expected.spans
    return document.columns is not None


def assert_same_documents(messages: list[bytes], rng: Random) -> int:
    """Return how many messages are read in C, each with random needs."""
    return sum(
        assert_same_document(
            message, rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.7, _random_limits(rng)
        )
        for message in messages
    )


def _random_limits(rng: Random) -> Limits:
    if rng.random() < 0.8:
        return Limits()
    return Limits(depth=rng.randint(1, 9), attributes=rng.randint(0, 5), name_length=rng.randint(1, 20))


@pytest.mark.parametrize("message", READ.values(), ids=READ)
@pytest.mark.parametrize("with_text", [True, False])
@pytest.mark.parametrize("with_source", [True, False])
@pytest.mark.parametrize("tokenizer", [True, False])
def test_documents_agree(message: str, with_text: bool, with_source: bool, tokenizer: bool) -> None:
    assert assert_same_document(message, with_text, with_source, tokenizer)
    assert assert_same_document(message.encode(), with_text, with_source, tokenizer)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "cp1252", "koi8-r"])
def test_documents_in_other_encodings_agree(encoding: str) -> None:
    rng = Random(encoding)
    letters = bytes(range(0xC0, 0x100)).decode("koi8-r" if encoding == "koi8-r" else "latin-1")
    for _ in range(50):
        text = "".join(rng.choices(letters, k=20))
        declared = "utf-16" if encoding.startswith("utf-16") else encoding
        message = f"<?xml version='1.0' encoding='{declared}'?><a b='{text}'>{text}<c>{text}</c>x</a>"
        assert_same_documents([message.encode(encoding)], rng)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_documents_of_mutants_agree(seed: int) -> None:
    rng = Random(seed)
    messages = list(mutants(rng, MUTANTS, real_messages(largest=8_000)))
    assert assert_same_documents(messages, rng) > MUTANTS / 20


def test_documents_of_generated_messages_agree() -> None:
    rng = Random(11)
    messages = [random_message(rng) for _ in range(500)]
    assert assert_same_documents(messages, rng) > 200


@pytest.mark.parametrize("folder", ["nitf", "ubl", "iso20022", "shakespeare", "bib", "hostile"])
def test_documents_of_real_messages_agree(folder: str) -> None:
    rng = Random(folder)
    files = sorted(path for path in shared_data.folder(folder).rglob("*.xml"))
    for path in files if FULL else rng.sample(files, min(len(files), 40)):
        data = path.read_bytes()
        if len(data) <= 2_000_000:
            assert_same_documents([data], rng)


def test_spans_are_slices_of_the_source() -> None:
    message = Message("<?xml version='1.0'?><!-- <x> --><a b='>'><c/>é<d >x</d ></a> ")
    document = read_nodes(message, Limits(), _UNTESTED, True, True)
    starts, stops = document.spans
    slices = [message.data[i:j].decode() for i, j in zip(starts, stops, strict=True)]
    assert slices == [message.data.decode(), "<a b='>'><c/>é<d >x</d ></a>", "<c/>", "<d >x</d >"]


def test_a_document_outlives_its_reader() -> None:
    """Names are kept for documents, however many other names are read after them."""
    first = read_nodes(Message("<first a='1'>x</first>"), Limits(), _UNTESTED, True)
    for n in range(3):
        names = "".join(f"<name{n}-{i}/>" for i in range(5_000))
        assert len(read_nodes(Message(f"<r>{names}</r>"), Limits(), _UNTESTED, True).names) == 5_002
    assert (first.names, first.attributes) == (["", "first"], [[], ["a", "1"]])


def test_names_are_the_same_strings() -> None:
    documents = [read_nodes(Message(f"<name><x{i}/></name>"), Limits(), _UNTESTED, True) for i in range(9)]
    assert len({id(document.names[1]) for document in documents}) == 1


def test_documents_leave_no_memory_behind() -> None:
    """Neither documents, nor the columns made of them, nor refusals, nor ever new names."""

    def read(count: int) -> None:
        for i in range(count):
            data = f"<r{i} xmlns:p='u{i}'><p:a b='{i}' c='x'>text {i}</p:a>{'<e/>' * 50}</r{i}>"
            document = read_nodes(Message(data), Limits(), _UNTESTED, True, True)
            for column in COLUMNS:
                getattr(document, column)
            assert document.spans
            with pytest.raises(MessageError):
                read_nodes(Message(f"<q{i}><a></q{i}>"), Limits(), _UNTESTED, True)

    read(3_000)
    gc.collect()
    before = resident_bytes()
    read(10_000)
    gc.collect()
    assert resident_bytes() - before < 2_000_000


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_tag_paths_have_the_same_numbers(share: float) -> None:
    """The trie has a share of the paths, so that the others are numbered behind them."""
    rng = Random(f"paths {share}")
    for _ in range(200):
        data = random_message(rng)
        both = read_both(data, with_text=False, with_source=False, tokenizer=True, limits=Limits())
        if both is None:
            continue
        found, expected = both
        everything: list[tuple[int, str]] = []
        expected.number_paths([{}], everything)
        children: list[dict[str, int]] = [{} for _ in range(len(everything) + 1)]
        known: list[int | None] = []
        for parent, name in everything:
            above = -1 if parent < 0 else known[parent]
            is_known = above is not None and rng.random() < share
            known.append(sum(each is not None for each in known) if is_known else None)
            if above is not None and known[-1] is not None:
                children[above][name] = known[-1]
        del children[sum(each is not None for each in known) : -1]
        literals: tuple[list[tuple[int, str]], list[tuple[int, str]]] = ([], [])
        numbers = expected.number_paths(children, literals[0])
        assert found.number_paths(children, literals[1]) == numbers
        assert literals[0] == literals[1]
        assert len(literals[0]) + len(children) - 1 == len(everything) == len(set(numbers)) - 1


def test_a_trie_that_is_none_is_refused() -> None:
    document = read_nodes(Message("<a><b/></a>"), Limits(), _UNTESTED, False)
    with pytest.raises(ValueError, match="roots"):
        document.number_paths([], [])
    with pytest.raises(TypeError, match="dict"):
        document.number_paths([None], [])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="int"):
        document.number_paths([{"a": "one"}], [])  # type: ignore[dict-item]
