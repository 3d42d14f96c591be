"""Transactions: producer ids, who may write, how transactions end, and how they are described."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from odradek.records.scan import scan_batches
from odradek.testing.conformance.suite import add
from odradek.testing.conformance.target import Target, Topic, Transaction, batch, expect, expect_error

_EVERY_VERSION = {
    "InitProducerId": range(6),
    "AddPartitionsToTxn": range(4),
    "AddOffsetsToTxn": range(5),
    "EndTxn": range(6),
}


def _init(target: Target, transaction: Transaction, version: int = 5, **fields: Any) -> Any:
    return target.call("InitProducerId", version, **{"transactional_id": transaction.name, **fields})


def _end(target: Target, transaction: Transaction, version: int, *, committed: bool) -> int:
    return int(target.call("EndTxn", version, **transaction.fields, committed=committed).error_code)


def _add(target: Target, transaction: Transaction, topic: Topic, version: int = 3) -> int:
    fields = {**transaction.fields, "topics": [{"name": topic.name, "partitions": [0]}]}
    old = {f"v3_and_below_{name}": value for name, value in fields.items()}
    answer = target.call("AddPartitionsToTxn", version, **old)
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _add_offsets(target: Target, transaction: Transaction, version: int) -> int:
    return int(target.call("AddOffsetsToTxn", version, **transaction.fields, group_id=target.name()).error_code)


def _produce(target: Target, transaction: Transaction, topic: Topic, version: int) -> int:
    data = transaction.batch(b"a")
    return int(target.produce(topic, data, version=version, transactional_id=transaction.name).error_code)


def _marker_headers(target: Target, topic: Topic) -> list[Any]:
    return [header for header in scan_batches(target.fetch(topic, 0).records or b"") if header.is_control]


# -- producer ids


def ids_of_idempotent_producers_differ(target: Target) -> None:
    """Each producer without a transactional id gets an id of its own, with epoch 0."""
    made = [target.call("InitProducerId", version) for version in (0, 5)]
    expect("epochs", [one.producer_epoch for one in made], [0, 0])
    expect("the ids are the same", made[0].producer_id == made[1].producer_id, False)


def each_initialisation_has_the_next_epoch(target: Target) -> None:
    """A transactional id keeps its producer id, and each initialisation has the next epoch."""
    transaction = target.transaction()
    again = _init(target, transaction)
    expect("id and epoch", (again.producer_id, again.producer_epoch), (transaction.producer_id, transaction.epoch + 1))


def an_empty_transactional_id_is_invalid(target: Target) -> None:
    """An empty transactional id is INVALID_REQUEST."""
    expect_error("error", target.call("InitProducerId", 5, transactional_id="").error_code, "INVALID_REQUEST")


def a_time_out_must_be_positive(target: Target) -> None:
    """A time-out of 0 is INVALID_TRANSACTION_TIMEOUT."""
    answer = _init(target, target.transaction(), transaction_timeout_ms=0)
    expect_error("error", answer.error_code, "INVALID_TRANSACTION_TIMEOUT")


def a_time_out_may_not_be_too_long(target: Target) -> None:
    """A time-out above `transaction.max.timeout.ms` is INVALID_TRANSACTION_TIMEOUT."""
    answer = _init(target, target.transaction(), transaction_timeout_ms=(1 << 31) - 1)
    expect_error("error", answer.error_code, "INVALID_TRANSACTION_TIMEOUT")


def a_producer_goes_on_after_an_error(target: Target) -> None:
    """A producer that tells its id and epoch gets the next epoch, and the same one if it asks again (KIP-360)."""
    transaction = target.transaction()
    known = {"producer_id": transaction.producer_id, "producer_epoch": transaction.epoch}
    made = [_init(target, transaction, **known).producer_epoch for _ in range(2)]
    expect("epochs", made, [transaction.epoch + 1] * 2)


def a_replaced_producer_cannot_go_on(target: Target) -> None:
    """A producer whose epoch was replaced is PRODUCER_FENCED; INVALID_PRODUCER_EPOCH below v4 (KIP-588)."""
    transaction = target.transaction()
    _init(target, transaction)
    known = {"producer_id": transaction.producer_id, "producer_epoch": transaction.epoch}
    expect_error("error", _init(target, transaction, 4, **known).error_code, "PRODUCER_FENCED")
    expect_error("error of v3", _init(target, transaction, 3, **known).error_code, "INVALID_PRODUCER_EPOCH")


# -- who may write


def an_initialisation_aborts_what_is_open(target: Target) -> None:
    """An initialisation aborts the open transaction; until that is done, it is CONCURRENT_TRANSACTIONS."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    expect_error("first answer", _init(target, transaction).error_code, "CONCURRENT_TRANSACTIONS")
    made = target.transactional_producer(transaction.name)
    expect("epoch", made.producer_epoch, transaction.epoch + 2)
    expect_error("produced", _produce(target, transaction, topic, 11), "INVALID_PRODUCER_EPOCH")
    expect_error("ended", _end(target, transaction, 2, committed=True), "PRODUCER_FENCED")
    expect_error("ended by v1", _end(target, transaction, 1, committed=True), "INVALID_PRODUCER_EPOCH")
    expect_error("added", _add(target, transaction, topic, 2), "PRODUCER_FENCED")
    expect_error("added by v1", _add(target, transaction, topic, 1), "INVALID_PRODUCER_EPOCH")


def what_is_fenced_gets_a_higher_epoch(target: Target) -> None:
    """The abort of an open transaction by an initialisation has the next epoch, so that the old producer is fenced."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    target.transactional_producer(transaction.name)
    headers = target.until("the marker is there", lambda: _marker_headers(target, topic) or None)
    expect("epochs of the markers", [header.producer_epoch for header in headers], [transaction.epoch + 1])
    expect_error("written by the old one", _produce(target, transaction, topic, 11), "INVALID_PRODUCER_EPOCH")


def a_partition_must_be_added_first(target: Target) -> None:
    """A batch to a partition that was not added is INVALID_TXN_STATE, from Produce 11 on TRANSACTION_ABORTABLE."""
    topic, transaction = target.topic(), target.transaction()
    expect_error("error", _produce(target, transaction, topic, 9), "INVALID_TXN_STATE")
    expect_error("error of v11", _produce(target, transaction, topic, 11), "TRANSACTION_ABORTABLE")


def what_follows_a_refused_batch_waits_for_it(target: Target) -> None:
    """After a batch that could not be verified, none with a higher sequence number is taken before it (KIP-890)."""
    topic, transaction = target.topic(), target.transaction()
    first, second = transaction.batch(b"a"), transaction.batch(b"b", sequence=1)
    fields: dict[str, Any] = {"transactional_id": transaction.name}
    expect_error("not added", target.produce(topic, first, **fields).error_code, "INVALID_TXN_STATE")
    transaction.add(topic)
    found = target.produce(topic, second, **fields)
    expect_error("the second one", found.error_code, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    expect("offsets", [target.produced(topic, data, **fields) for data in (first, second)], [0, 1])
    transaction.end(committed=False)


def produce_12_adds_the_partition(target: Target) -> None:
    """From Produce 12 on a batch adds its partition to the transaction (KIP-890)."""
    topic, transaction = target.topic(), target.transaction()
    expect_error("error", _produce(target, transaction, topic, 12), "NONE")
    transaction.end(committed=True)


def another_producer_id_has_no_transaction(target: Target) -> None:
    """A transactional id with another producer's id is INVALID_PRODUCER_ID_MAPPING."""
    topic, transaction = target.topic(), target.transaction()
    transaction.producer_id += 1
    expect_error("added", _add(target, transaction, topic), "INVALID_PRODUCER_ID_MAPPING")
    expect_error("ended", _end(target, transaction, 3, committed=True), "INVALID_PRODUCER_ID_MAPPING")
    expect_error("ended by v5", _end(target, transaction, 5, committed=True), "INVALID_PRODUCER_ID_MAPPING")


def an_unknown_partition_adds_none(target: Target) -> None:
    """If a partition does not exist, none is added: the others are OPERATION_NOT_ATTEMPTED."""
    topic, transaction = target.topic(), target.transaction()
    fields = {**transaction.fields, "topics": [{"name": topic.name, "partitions": [0, 9]}]}
    old = {f"v3_and_below_{name}": value for name, value in fields.items()}
    (found,) = target.call("AddPartitionsToTxn", 3, **old).results_by_topic_v3_and_below
    codes = {one.partition_index: int(one.partition_error_code) for one in found.results_by_partition}
    expect_error("the known one", codes[0], "OPERATION_NOT_ATTEMPTED")
    expect_error("the unknown one", codes[9], "UNKNOWN_TOPIC_OR_PARTITION")


def a_batch_needs_its_transactional_id(target: Target) -> None:
    """A transactional batch in a request without a transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    topic, transaction = target.topic(), target.transaction()
    answer = target.produce(topic, transaction.batch(b"a"), version=9)
    expect_error("error", answer.error_code, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


# -- ends


def a_transaction_that_never_began_cannot_end(target: Target) -> None:
    """Below EndTxn 5 an end without a transaction is INVALID_TXN_STATE, as Flink may send it."""
    transaction = target.transaction()
    for committed in (True, False):
        expect_error("error", _end(target, transaction, 3, committed=committed), "INVALID_TXN_STATE")


def an_end_may_be_asked_for_again(target: Target) -> None:
    """The same end is answered again without an error, the other one with INVALID_TXN_STATE."""
    transaction = target.open_transaction(target.topic())
    transaction.end(committed=True)
    expect_error("committed again", _end(target, transaction, 3, committed=True), "NONE")
    expect_error("aborted then", _end(target, transaction, 3, committed=False), "INVALID_TXN_STATE")


def end_txn_5_has_the_next_epoch(target: Target) -> None:
    """From EndTxn 5 on the answer has the epoch of the next transaction, again if it is asked for again (KIP-890)."""
    topic, transaction = target.topic(), target.transaction()
    expect_error("produced", _produce(target, transaction, topic, 12), "NONE")
    made = target.call("EndTxn", 5, **transaction.fields, committed=True)
    expect("id and epoch", (made.producer_id, made.producer_epoch), (transaction.producer_id, transaction.epoch + 1))
    target.until("the markers are written", transaction.is_complete)
    again = target.call("EndTxn", 5, **transaction.fields, committed=True)
    expect("asked again", (again.producer_id, again.producer_epoch), (made.producer_id, made.producer_epoch))
    expect_error("with the old epoch", _produce(target, transaction, topic, 12), "INVALID_PRODUCER_EPOCH")


def end_txn_5_aborts_without_a_transaction(target: Target) -> None:
    """From EndTxn 5 on a producer may abort though nothing was written; it may not commit."""
    transaction = target.transaction()
    expect_error("committed", _end(target, transaction, 5, committed=True), "INVALID_TXN_STATE")
    made = target.call("EndTxn", 5, **transaction.fields, committed=False)
    expect_error("aborted", made.error_code, "NONE")
    expect("epoch", made.producer_epoch, transaction.epoch + 1)


# -- descriptions


def producers_of_a_partition(target: Target) -> None:
    """DescribeProducers tells where the open transaction of a producer begins."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    transaction = target.open_transaction(topic, b"b", b"c")
    asked = [{"name": topic.name, "partition_indexes": [0]}]
    (found,) = target.call("DescribeProducers", 0, topics=asked).topics[0].partitions[0].active_producers
    expect("id and epoch", (found.producer_id, found.producer_epoch), (transaction.producer_id, transaction.epoch))
    expect("sequence and start", (found.last_sequence, found.current_txn_start_offset), (1, 1))
    transaction.end(committed=False)


def the_producers_of_what_does_not_exist(target: Target) -> None:
    """DescribeProducers explains why a topic cannot be, and that it does not exist, but no unknown partition."""
    asked = {"": "INVALID_TOPIC_EXCEPTION", target.name(): "UNKNOWN_TOPIC_OR_PARTITION"}
    for name, wanted in asked.items():
        answer = target.call("DescribeProducers", 0, topics=[{"name": name, "partition_indexes": [0]}])
        (found,) = answer.topics[0].partitions
        expect_error(f"error of {name!r}", found.error_code, wanted)
        expect(f"there is a message for {name!r}", bool(found.error_message), True)
    answer = target.call("DescribeProducers", 0, topics=[{"name": target.topic().name, "partition_indexes": [9]}])
    (found,) = answer.topics[0].partitions
    expect_error("error of the partition", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    expect("message", found.error_message, None)


def an_open_transaction_is_described(target: Target) -> None:
    """DescribeTransactions tells the state and the partitions."""
    topic, transaction = target.topic(), target.transaction(transaction_timeout_ms=12_345)
    transaction.add(topic)
    (found,) = target.call("DescribeTransactions", 0, transactional_ids=[transaction.name]).transaction_states
    expect("state", (found.transaction_state, found.producer_id), ("Ongoing", transaction.producer_id))
    expect("partitions", [(one.topic, one.partitions) for one in found.topics], [(topic.name, (0,))])
    expect("time-out in s", found.transaction_timeout.total_seconds(), 12.345)
    transaction.end(committed=False)


def an_unknown_transaction_is_not_found(target: Target) -> None:
    """DescribeTransactions of an unknown id is TRANSACTIONAL_ID_NOT_FOUND, of an empty one INVALID_REQUEST."""
    target.transaction()
    ids = [target.name(), ""]
    unknown, empty = target.call("DescribeTransactions", 0, transactional_ids=ids).transaction_states
    expect_error("unknown", unknown.error_code, "TRANSACTIONAL_ID_NOT_FOUND")
    expect_error("empty", empty.error_code, "INVALID_REQUEST")


def listed_by_state_and_pattern(target: Target) -> None:
    """ListTransactions filters by state, producer id and pattern, and names states that do not exist."""
    transaction = target.transaction()

    def listed(version: int, **fields: Any) -> list[str]:
        return [one.transactional_id for one in target.call("ListTransactions", version, **fields).transaction_states]

    mine: dict[str, Any] = {"producer_id_filters": [transaction.producer_id]}
    expect("by producer id", listed(0, **mine), [transaction.name])
    expect("by state", listed(2, **mine, state_filters=["Empty"]), [transaction.name])
    expect("by another state", listed(2, **mine, state_filters=["Ongoing"]), [])
    expect("by pattern", listed(2, transactional_id_pattern=f"{transaction.name[:-1]}."), [transaction.name])
    answer = target.call("ListTransactions", 2, state_filters=["Unknown"])
    expect("unknown states", answer.unknown_state_filters, ("Unknown",))
    answer = target.call("ListTransactions", 2, transactional_id_pattern="(")
    expect_error("a wrong pattern", answer.error_code, "INVALID_REGULAR_EXPRESSION")


def markers_of_an_unknown_partition(target: Target) -> None:
    """WriteTxnMarkers to a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": target.name(), "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    for version in (1, 2):
        (found,) = target.call("WriteTxnMarkers", version, markers=[marker]).markers
        expect_error("error", found.topics[0].partitions[0].error_code, "UNKNOWN_TOPIC_OR_PARTITION")


# -- every version


def _at_version(api: str, version: int) -> None:
    def run(target: Target) -> None:
        topic, transaction = target.topic(), target.transaction()
        if api == "InitProducerId":
            expect_error("error", _init(target, transaction, version).error_code, "NONE")
            return
        if api != "AddPartitionsToTxn":
            transaction.add(topic)
        match api:
            case "AddPartitionsToTxn":
                expect_error("error", _add(target, transaction, topic, version), "NONE")
            case "AddOffsetsToTxn":
                target.group()
                expect_error("error", _add_offsets(target, transaction, version), "NONE")
            case "EndTxn":
                expect_error("error", _end(target, transaction, version, committed=True), "NONE")
                return
        transaction.end(committed=False)

    add(f"transactions.{api}_v{version}", f"{api} is answered at version {version}.", run)


for _api, _versions in _EVERY_VERSION.items():
    for _version in _versions:
        _at_version(_api, _version)


def offsets_by_topic_id(target: Target) -> None:
    """Offsets of a transaction name topics by their ids since v6, which knows more errors (KIP-1319)."""
    target.needs("TxnOffsetCommit", 6)
    topic, group, name = target.topic(), target.group(), target.name("transaction")
    made = target.transactional_producer(name)
    producer = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}]

    def commit(topic_id: UUID, **fields: Any) -> Any:
        topics = [{"topic_id": topic_id, "partitions": partitions}]
        return target.call("TxnOffsetCommit", 6, **producer, topics=topics, **{"group_id": group, **fields}).topics[0]

    done = commit(topic.id)
    expect("topic", done.topic_id, topic.id)
    expect_error("error", done.partitions[0].error_code, "NONE")
    expect_error("of an unknown topic", commit(uuid4()).partitions[0].error_code, "UNKNOWN_TOPIC_ID")
    member = {"generation_id_or_member_epoch": 1, "member_id": "m", "group_id": target.group()}
    expect_error("of no group", commit(topic.id, **member).partitions[0].error_code, "GROUP_ID_NOT_FOUND")
