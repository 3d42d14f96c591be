"""The records that create and delete access control lists.

    create   an AccessControlEntryRecord for each that there is not yet
    delete   a RemoveAccessControlEntryRecord for each that a filter matches

Source in Kafka: `AclControlManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.coordination.authorization.acls import Acl, AclFilter, AclIndex
from odradek.errors import PolicyViolationError
from odradek.messages.metadata.metadata_records import MetadataRecord, RemoveAccessControlEntryRecord
from odradek.messages.uuids import random_uuid
from odradek.storage.metadata.cluster import MAX_RECORDS_PER_USER_OP, check_record_count
from odradek.storage.metadata.metadata_image import MetadataImage


def created(image: MetadataImage, acls: Iterable[Acl]) -> list[MetadataRecord]:
    """Return the records that create those of some access control lists that there are not yet.

    Raises:
        PolicyViolationError: They are too many.
    """
    present = {Acl.of_record(record) for record in image.acls.values()}
    new = [acl for acl in dict.fromkeys(acls) if acl not in present]
    check_record_count(len(new))
    return [acl.to_record(random_uuid()) for acl in new]


class AclRemoval:
    """Deletes the access control lists that filters match. It belongs to one thread.

    Args:
        filters: The filters.

    Attributes:
        matched: What each filter matched, once the records are made.
    """

    def __init__(self, filters: Sequence[AclFilter]) -> None:
        self._filters = filters
        self.matched: list[list[Acl]] = []

    def records(self, image: MetadataImage) -> list[MetadataRecord]:
        """Return the records.

        Raises:
            PolicyViolationError: They are too many.
        """
        ids = {Acl.of_record(record): acl_id for acl_id, record in image.acls.items()}
        index = AclIndex(ids)
        removed: dict[Acl, None] = {}
        left = MAX_RECORDS_PER_USER_OP
        for one in self._filters:
            found = index.matching(one)
            self.matched.append(found)
            removed |= dict.fromkeys(found)
            left -= len(found)
            if left < 0:
                raise PolicyViolationError(
                    f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation."
                )
        return [RemoveAccessControlEntryRecord(ids[acl]) for acl in removed]
