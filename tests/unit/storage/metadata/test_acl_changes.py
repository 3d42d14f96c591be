"""The records of access control lists: as bytes, in the image, and those that create and delete them."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordination.authorization.acls import Acl, AclFilter, of_codes
from odradek.errors import FormatError, PolicyViolationError
from odradek.messages.metadata.metadata_records import (
    RemoveAccessControlEntryRecord,
    decode_metadata_record,
    encode_metadata_record,
    metadata_record_json,
)
from odradek.storage.metadata.acl_changes import AclRemoval, created
from odradek.storage.metadata.cluster import MAX_RECORDS_PER_USER_OP
from odradek.storage.metadata.metadata_image import MetadataImage

ACL = Acl(*of_codes(2, "orders-", 4, "User:alice", "*", 3, 3))
ID = UUID(int=7)


def every() -> AclFilter:
    return AclFilter(*of_codes(1, None, 1, None, None, 1, 1))


def test_the_record_is_that_of_kafkas_schema() -> None:
    value = encode_metadata_record(ACL.to_record(ID))
    fields = b"\x02" + b"\x08orders-" + b"\x04" + b"\x0bUser:alice" + b"\x02*" + b"\x03\x03"
    assert value == b"\x01\x12\x00" + ID.bytes + fields + b"\x00"
    assert Acl.of_record(decode_metadata_record(value)) == ACL  # type: ignore[arg-type]
    assert encode_metadata_record(RemoveAccessControlEntryRecord(ID)) == b"\x01\x13\x00" + ID.bytes + b"\x00"
    assert metadata_record_json(value)["type"] == "ACCESS_CONTROL_ENTRY_RECORD"


def test_a_copy_of_an_image_changes_apart() -> None:
    image = MetadataImage()
    image.apply(ACL.to_record(ID))
    copy = image.copy()
    copy.apply(RemoveAccessControlEntryRecord(ID))
    image.apply(ACL.to_record(UUID(int=8)))
    assert (set(image.acls), copy.acls) == ({ID, UUID(int=8)}, {})
    with pytest.raises(FormatError, match="removes ACL"):
        copy.apply(RemoveAccessControlEntryRecord(ID))


def test_only_those_are_created_that_there_are_not() -> None:
    image = MetadataImage()
    other = ACL._replace(resource_name="other")
    image.apply_all(created(image, [ACL, ACL]))
    assert [Acl.of_record(one) for one in created(image, [ACL, other, other])] == [other]  # type: ignore[arg-type]
    assert len(image.acls) == 1


def test_an_acl_that_two_filters_match_is_deleted_once_and_told_twice() -> None:
    image = MetadataImage()
    image.apply(ACL.to_record(ID))
    removal = AclRemoval([every(), every()._replace(principal="User:bob"), every()._replace(host="*")])
    assert removal.records(image) == [RemoveAccessControlEntryRecord(ID)]
    assert removal.matched == [[ACL], [], [ACL]]


@pytest.mark.slow
def test_there_is_a_most_of_what_one_request_changes() -> None:
    image = MetadataImage()
    acls = [ACL._replace(resource_name=f"topic-{number}") for number in range(MAX_RECORDS_PER_USER_OP + 1)]
    with pytest.raises(PolicyViolationError):
        created(image, acls)
    image.apply_all(created(image, acls[:-1]))
    assert len(AclRemoval([every()]).records(image)) == MAX_RECORDS_PER_USER_OP
    with pytest.raises(PolicyViolationError, match="10000 acls"):
        AclRemoval([every(), every()]).records(image)
