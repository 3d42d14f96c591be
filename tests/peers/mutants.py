"""Faults that are planted into the broker's code while it runs, each with the checks of conformance that must see it.

A fault is a place, a piece of its source and what replaces it. The function is compiled again with that change, and
replaces the original wherever that was imported. If the piece is not in the source any more, the table is out of date.
"""

from __future__ import annotations
import __future__ as features

import importlib
import inspect
import pkgutil
import sys
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

import odradek.broker


class Edit(NamedTuple):
    """A change of a function: `module:name` or `module:Class.name` below `odradek`, what is replaced, and by what."""

    where: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A fault, and the checks that must see it; `until_restart` is a state that the broker is in before its restart."""

    checks: str
    fault: Edit
    until_restart: Edit | None = None


_FAULTS = """
    coordination.groups.classic:ClassicGroup.
        committed_offsets.a_member_of_an_old_generation
            check_offset_commit: self.check_generation(generation_id) => pass
            check_offset_commit: elif not is_transactional => elif False
        groups.a_static_member_that_was_replaced_is_fenced
            validate: found != member_id => False
        groups.a_group_with_members_is_not_deleted
            check_delete: self.check_state(Action.DELETE) => pass
    coordination.shares.acquisition:Acquisition.
        share_delivery.a_record_is_not_delivered_too_often
            _give: run.delivery_count += 1 => pass
        share_delivery.record_limit_is_not_exceeded
            _acquire_new: self._wish.is_record_limit => False
        share_delivery.often_delivered_records_come_in_smaller_portions
            _is_throttled: if not batch.is_split => if True
    coordination.shares.changes:Changes.
        share_delivery.nobody_acknowledges_for_others
            _acknowledge: if whole.member_id != member_id => if False
        share_delivery.all_or_nothing_is_acknowledged
            acknowledge: is_written=False => is_written=True
        share_delivery.a_delivery_counts_if_its_session_ends
            release: state, limits => state, limits._replace(delivery_count_limit=9)
        share_delivery.renewals_can_be_off
            _apply: elif limits.renews => elif True
        share_delivery.a_lock_that_ends_makes_records_available
            time_out: self._in_flight.freed(part.first_offset) => pass
    coordination.shares.states:DeliveryStates.
        share_coordinator.old_epochs_are_fenced
            _check_state_epoch: self._state_epochs.get(key, state_epoch) > state_epoch => False
            _check_leader_epoch: self._leader_epochs.get(key, leader_epoch) > leader_epoch => False
        share_coordinator.written_states_are_merged
            _replay_update: _updated(before.state_batches, value.state_batches, start) => _in_order(value.state_batches)
    coordination.shares.sessions:ShareSessions.
        share_delivery.a_session_goes_on_with_its_epochs
            go_on: session.epoch != epoch => False
    broker.shares.deliveries:ShareDeliveries.
        share_delivery.the_end_of_a_session_releases_records
            end_session: if session is not None => if False
        share_delivery.a_session_ends_with_its_connection
            disconnected: self._tasks.start(self._gone(key, session, self.sessions.ended)) => pass
    broker.shares.fetches:ShareFetch.
        share_settings.aborted_records_are_left_out
            _acquire: if self._is_committed and acquired => if False
    broker.groups.membership:Membership.
        groups.a_heartbeat_of_another_generation
            heartbeat: group.check_generation(generation_id) => pass
        groups.a_sync_of_another_generation
            sync: group.check_generation(generation_id) => pass
        groups.a_second_member_makes_the_first_rejoin
            heartbeat: group.check_state(Action.STAY) => pass
        groups.no_common_protocol_is_inconsistent
            _join: not group.supports(request.protocol_type, request.protocols) => False
        groups.the_first_join_is_told_its_member_id
            _join: request.version < _FIRST_THAT_REQUIRES_MEMBER_ID => True
        timers.a_silent_member_is_removed
            _watch: self._expire_member(group, member) => pass
        timers.a_heartbeat_keeps_a_member
            heartbeat: self._heard_of(group, member) => pass
        timers.a_member_that_does_not_join_again_is_left_out
            _complete_later: group.rebalance_timeout_ms => 10_000_000
        restarts.silent_members_are_removed
            take_over: self._heard_of(group, member) => pass
    coordination.groups.reconciliation:ConsumerMember.
        consumer_groups.a_greater_epoch_is_fenced
            check_epoch: if epoch in (JOINING_EPOCH, self.member_epoch) => if epoch >= self.member_epoch or epoch == 0
        consumer_groups.a_smaller_epoch_is_fenced
            check_epoch: if epoch in (JOINING_EPOCH, self.member_epoch) => if epoch <= self.member_epoch
        consumer_groups.a_member_commits_in_its_epoch
            check_commit_epoch: epoch > self.member_epoch or since is None => since is None
        consumer_groups.a_commit_of_before_the_assignment_is_stale
            check_commit_epoch: epoch < since => False
        consumer_groups.a_fetch_of_offsets_checks_the_epoch
            check_fetch_epoch: epoch != self.member_epoch => False
        consumer_heartbeats.an_answer_may_be_lost
            check_epoch: epoch == self.previous_member_epoch and => False and
        consumer_heartbeats.the_last_epoch_with_other_partitions_is_fenced
            check_epoch: not _is_subset(owned, self.assigned) => False
        consumer_heartbeats.an_epoch_before_the_last_is_fenced
            check_epoch: epoch == self.previous_member_epoch => True
        consumer_offsets.an_epoch_since_the_assignment_is_taken
            check_commit_epoch: epoch < since => True
        consumer_offsets.what_is_given_up_can_still_be_committed
            check_commit_epoch: self.revoked.get(topic_id, {}).get(partition) => None
        consumer_static_members.one_that_is_away_keeps_its_partitions
            left_for_a_while: assigned=assigned => assigned={}
    coordination.groups.reconciliation:Reconciliation.
        consumer_groups.partitions_move_after_they_were_given_up
            _towards_target: if revoked and _owns(self.owned, revoked) => if False
            _towards_target: number not in own and self.is_taken(topic, number) => False
        consumer_reconciliation.a_heartbeat_without_partitions_gives_nothing_up
            next_step: if _owns(self.owned, member.revoked) => if self.owned is not None and _owns(self.owned, member.revoked)
        consumer_reconciliation.a_part_that_is_given_up_is_not_enough
            next_step: if _owns(self.owned, member.revoked) => if self.owned is None
        consumer_reconciliation.a_partition_is_never_with_two
            _towards_target: number not in own and self.is_taken(topic, number) => False
    coordination.groups.assignors.ranges:
        consumer_assignors.range_gives_consecutive_partitions
            ranges: (place < extra) => (place >= len(member_ids) - extra)
        consumer_assignors.range_orders_static_members_by_their_instance
            _rank: member.instance_id is None, => False,
    coordination.groups.assignors.uniform_same:
        consumer_assignors.uniform_is_even
            uniform_same: quota + (extra > 0) => quota + 2 * (extra > 0)
        consumer_assignors.uniform_moves_no_more_than_it_must
            _keep: copied(member.target, topics, counts) => {}
    coordination.groups.heartbeat:
        consumer_groups.a_static_member_is_fenced_by_its_successor
            check_static: member.member_id != member_id => False
    coordination.groups.departures:
        consumer_static_members.leaving_for_others_is_refused
            leaving_member: static is not None and not member_id => static is not None
        consumer_static_members.one_that_is_away_keeps_its_partitions
            leave: request.member_epoch != LEAVING_STATIC_EPOCH => True
        consumer_static_members.one_may_leave_for_good
            leave: or request.member_epoch != LEAVING_STATIC_EPOCH => or False
        consumer_descriptions.several_members_are_one_epoch
            remove: group.epoch + 1, found => group.epoch + len(members), found
    coordination.groups.heartbeat:Heartbeat.
        consumer_groups.an_instance_id_in_use_is_unreleased
            _replaced: old.member_epoch != LEAVING_STATIC_EPOCH and not is_mixed => False
        consumer_groups.a_pattern_that_is_not_valid_is_refused
            _change_regex: self._request.regex_error is not None => False
        consumer_groups.a_topic_that_is_made_is_assigned
            run: is_new_epoch or known_topics != self._topics.version => is_new_epoch
        migration.another_subscription_rebalances_the_classic_group
            _as_classic: group.target_epoch < self._epoch => False
        migration.an_eager_member_gives_up_all_at_once
            _reconciled: is_changed, self._request.owned, group.is_taken => is_changed, None, group.is_taken
        consumer_groups.a_heartbeat_that_changes_nothing_has_no_assignment
            run: request.is_full or moved.assigned != before.assigned => True
        consumer_groups.a_full_heartbeat_has_the_assignment
            run: request.is_full or moved.assigned => moved.assigned
        consumer_static_members.one_that_comes_back_has_its_partitions
            _replaced: self._group.targets.get(old.member_id, {}) => {}
        consumer_heartbeats.the_same_topics_are_no_new_epoch
            run: has_new_names = after.topic_names != before.topic_names => has_new_names = request.topic_names is not None
        consumer_timers.a_topic_that_matches_later_is_assigned
            _due_regexes: or known.version < self._topics.created_version => or False
    coordination.groups.consumer:ConsumerGroup.
        consumer_reconciliation.a_full_group_takes_no_more
            check_size: len(self.members) >= max_size => False
            check_size: and member_id not in self.members => and True
        consumer_reconciliation.an_assignment_has_its_time
            keeps_target: or is_early => or False
        consumer_timers.an_assignment_is_made_after_its_interval
            keeps_target: 0 <= now_ms - self.target_ms < interval_ms => True
        consumer_groups.others_may_not_commit
            committing_member: epoch < 0 and self.is_empty => epoch < 0
        consumer_groups.a_group_with_members_is_not_deleted
            check_delete: if self.members => if False
        consumer_groups.offsets_of_what_is_read_are_not_deleted
            is_subscribed_to: topic in self.names or topic in self.regex_names => False
        consumer_patterns.offsets_of_a_patterns_topic_are_not_deleted
            is_subscribed_to: or topic in self.regex_names => or False
        consumer_offsets.a_group_without_members_takes_commits_of_none
            committing_member: epoch < 0 and self.is_empty => False
        consumer_offsets.all_topics_are_for_members_in_their_epoch
            check_offset_fetch: member_id is not None or epoch >= 0 => False
        consumer_assignors.the_majority_chooses
            assignor: max(wanted => min(wanted
    broker.groups.changes:Changes.
        consumer_groups.an_empty_classic_group_becomes_a_consumer_group
            joined_group: group is None or group.is_empty => group is None
        migration.a_member_that_waits_to_join_joins_again
            _write: self._classic.removed(replaced, _INTERRUPTED) => self._classic.removed(replaced, 25)
    broker.groups.consumers:Consumers.
        consumer_groups.a_pattern_finds_its_topics
            _find_topics: regexes and group_id not in self._resolving => False
        consumer_timers.a_silent_member_is_removed
            _is_silent: self._turns.begin( => str(
        consumer_timers.a_member_that_gives_nothing_up_is_removed
            _is_late: self._turns.begin( => str(
        consumer_timers.a_heartbeat_keeps_a_member
            heartbeat: self._sessions.put(group_id, member.member_id, self.setting(group_id, _SESSION)) => self._sessions.is_set(group_id, member.member_id) or self._sessions.put(group_id, member.member_id, self.setting(group_id, _SESSION))
        migration.only_a_join_upgrades
            heartbeat: request.member_epoch == JOINING_EPOCH => True
    coordination.groups.migration:
        migration.a_group_of_another_type_is_not_upgraded
            check_upgrade: group.protocol_type != CONSUMER_PROTOCOL => False
        migration.the_data_of_an_assignor_is_not_upgraded
            _assigned: if assignment.user_data => if False
        migration.an_upgrade_keeps_what_members_have
            upgrade: dict.fromkeys(int_set_order(assigned[topic]), generation) for topic in assigned => {} for topic in ()
        migration.the_last_consumer_that_leaves_downgrades
            downgrades: 0 < remaining <= max_size => False
        migration.a_group_without_members_is_not_downgraded
            downgrades: 0 < remaining <= max_size => True
        migration.an_assignment_is_in_the_subscriptions_version
            assignment_of: version = protocol_version(subscription) => pass
        migration.a_static_member_changes_to_the_classic_protocol
            downgrade: replaced.member_id if is_new and replaced is not None else member.member_id => member.member_id
    coordination.groups.classic_members:
        migration.a_classic_member_needs_a_common_protocol
            check_join: not group.supports_classic(protocol_type, [name for name, _ in protocols]) => False
        migration.another_generation_is_illegal
            validate: generation_id != member.member_epoch => False
        migration.a_consumer_is_no_classic_member
            validate: if member.classic is None => if False
        migration.a_classic_member_gives_up_partitions_first
            syncs_in_vain: and member.state is not MemberState.UNREVOKED_PARTITIONS => and True
        migration.a_member_waits_for_partitions_without_a_rebalance
            joins_again: and not _waits(group, member) => and True
        migration.a_sync_names_the_protocol
            check_sync: type_ not in (None, CONSUMER_PROTOCOL) or name not in => name not in
    broker.groups.classic_consumers:ClassicConsumers.
        migration.a_new_classic_member_is_given_an_id
            join: if is_new and needs_id => if False
        migration.a_classic_member_is_told_to_join_again
            heartbeat: if joins_again(group, member) => if False
            sync: if syncs_in_vain(group, member) => if False
    coordination.groups.share:ShareMember.
        share_groups.a_greater_epoch_is_fenced
            check_epoch: if epoch in (0, self.member_epoch) or => if epoch >= self.member_epoch or epoch == 0 or
        share_groups.the_epoch_before_is_taken
            check_epoch: self.previous_member_epoch == epoch < self.member_epoch => False
        share_groups.an_older_epoch_is_fenced
            check_epoch: self.previous_member_epoch == epoch < self.member_epoch => epoch < self.member_epoch
    coordination.groups.share:ShareGroup.
        share_groups.a_group_with_members_is_not_deleted
            check_delete: if self.members => if False
        share_groups.joining_again_changes_nothing
            has_unassigned: version, found = topics.version, False => version, found = topics.version, True
        share_groups.members_share_a_partition
            has_unassigned: found = True => found = False
    coordination.groups.share_heartbeat:ShareHeartbeat.
        share_groups.a_heartbeat_that_names_topics_has_the_assignment
            run: or request.topic_names is not None => or False
        share_groups.a_topic_that_grows_is_assigned_whole
            _lacking: group.complete_at == self._topics.version => True
        share_groups.other_topics_change_the_assignment_at_once
            run: {one: target[one] for one in target if one in reads} => target
        share_groups.an_unknown_member_is_refused
            _member: request.member_epoch == JOINING_EPOCH and => True and
    coordination.groups.assignors.simple:_Shares.
        share_groups.members_have_partitions_of_their_own_if_there_are_enough
            level: surplus = len(held) - self._quotas[place] => surplus = 0
    broker.groups.shares:Shares.
        share_groups.a_classic_group_is_no_share_group
            group: if joins and group is None => if joins
        share_groups.an_altered_offset_is_described_with_its_lag
            for_each: return NO_ERROR => return 1
    broker.groups.share_offsets:ShareOffsets.
        share_groups.the_offsets_of_a_group_with_members_are_not_altered
            alter: group.check_delete() => pass
        share_groups.deleted_offsets_are_not_known
            delete: codes = yield from self._delete_states(group_id, partitions) => codes = {}
    broker.configs.group_keys:
        consumer_timers.a_session_is_as_long_as_the_group_says
            bounded_setting: if name not in config => if True
        group_settings.the_broker_bounds_the_session
            check_group_config: int(config[name]) <= high => True
        group_settings.a_setting_of_no_group_is_unknown
            check_group_config: if name not in GROUP_KEYS => if name not in config
    broker.configs.client_metrics_keys:
        client_metrics.the_interval_has_bounds
            check_client_metrics_config: if not _LOW_MS <= parsed.get(_INTERVAL, _LOW_MS) <= _HIGH_MS => if False
        client_metrics.an_unknown_setting_is_refused
            check_client_metrics_config: if one not in CLIENT_METRICS_KEYS => if one not in config
    coordination.groups.replay:GroupState.
        restarts.members_stay
            replay: self.groups[about.group] = ClassicGroup.from_record(about.group, value) => pass
        restarts.committed_offsets_stay
            replay: self.replay_offset(about, value, record.offset or 0, batch.producer_id if batch.is_transactional else -1) => pass
    coordination.groups.offsets:
        timers.offsets_of_an_empty_group_expire
            is_expired: now_ms - since_ms >= retention_ms => False
            is_expired: now_ms - since_ms >= retention_ms => True
    broker.groups.coordinator:Groups.
        committed_offsets.a_deleted_topic_takes_its_offsets_along
            topics_deleted: yield from _remove_offsets(shard, topics, end) => yield
        transaction_outcomes.offsets_of_an_aborted_transaction_are_dropped
            transaction_ended: is_committed=is_committed => is_committed=True
    broker.transactions.coordinator:TransactionCoordinator.
        transactions.what_is_fenced_gets_a_higher_epoch
            _fence: commit=False, client_version=version => commit=False, client_version=0
        transactions.an_initialisation_aborts_what_is_open
            _init_producer_id: metadata.state is TransactionState.ONGOING => False
        transactions.a_partition_must_be_added_first
            verify_partitions: if partition in metadata.partitions => if True
        transactions.a_time_out_may_not_be_too_long
            _init_producer_id: not 0 < timeout_ms <= => not 0 < min(timeout_ms, 1) <=
        restarts.an_open_transaction_times_out
            _resume: self._abort_later() => pass
        transaction_outcomes.a_commit_marker
            _left: metadata.state is TransactionState.PREPARE_COMMIT => metadata.state is TransactionState.PREPARE_ABORT
    coordination.transactions.metadata:TransactionMetadata.
        transactions.end_txn_5_has_the_next_epoch
            ending: min(epoch + 1, MAX_PRODUCER_EPOCH), epoch => epoch, epoch
        transactions.each_initialisation_has_the_next_epoch
            initialised: self.producer_epoch + 1, NO_PRODUCER_EPOCH => max(self.producer_epoch, 0), NO_PRODUCER_EPOCH
        transactions.a_replaced_producer_cannot_go_on
            initialised: raise RefusedError(TransactionErrorCode.PRODUCER_FENCED) => pass
        timers.a_transaction_times_out
            has_timed_out: self.start_ms + self.timeout_ms < now_ms => False
    coordination.transactions.rules:
        transactions.another_producer_id_has_no_transaction
            _check_is_current: metadata.producer_id != producer.producer_id => False
        transactions.an_initialisation_aborts_what_is_open
            _check_is_current: metadata.producer_epoch != producer.producer_epoch => False
        transactions.a_transaction_that_never_began_cannot_end
            is_to_be_ended: raise RefusedError(TransactionErrorCode.INVALID_TXN_STATE, reason) => return False
    coordination.transactions.lowest_sequences:LowestSequences.
        transactions.what_follows_a_refused_batch_waits_for_it
            check: sequence > lowest => False
    storage.producers.producer_state:ProducerState.
        produce.a_batch_sent_twice_is_there_once
            find_duplicate: wanted = (header.base_sequence, header.last_sequence) => wanted = None
        produce.the_last_five_batches_are_known
            followed_by: self.batches.copy() => deque(maxlen=BATCHES_RETAINED)
    storage.producers.producer_state:ProducerAppend.
        produce.a_gap_is_out_of_order
            _check_sequence: if not in_sequence and => if False and
        produce.an_older_epoch_is_fenced
            _add_data: header.producer_epoch < self.state.producer_epoch => False
        produce.a_new_epoch_begins_at_0
            _check_sequence: sequence != 0 and self.state.producer_epoch != NO_PRODUCER_EPOCH => False
        produce.sequence_numbers_wrap
            _check_sequence: (sequence == 0 and last == MAX_SEQUENCE) => False
    storage.log.appender:Appender.
        produce.a_batch_sent_twice_has_its_time
            _append_numbered: same.last_offset, same.timestamp => same.last_offset, None
    coordination.quotas.alterations:
        client_quotas.wrong_alterations_are_refused
            check_value: value <= 0 => value < 0
            check_value: value > most => False
            check_entity: len(entity) > 1 => False
        client_quotas.a_key_that_is_named_twice_is_refused
            altered: len(dict(alteration.ops)) < len(alteration.ops) => False
    coordination.quotas.alterations:Filter.
        client_quotas.wrong_filters_are_refused
            __init__: kind in self._names or kind in self._types => False
        client_quotas.entities_have_one_or_two_types
            matches: self._is_strict and => False and
    coordination.quotas.limits:Limits.
        client_quotas.the_most_specific_quota_counts
            of: in (user, _ANY) => in (_ANY, user)
    coordination.quotas.rates:Rate.
        client_quotas.a_producer_is_throttled
            _measure: max(0, count - 1 - elapsed_ms // size_ms) => 1
    broker.quotas.changes:
        client_quotas.an_entity_that_is_named_twice_has_an_error_but_changes
            change_quotas: if entity in errors: => if False:
        client_quotas.a_request_may_only_be_checked
            change_quotas: if validate_only: => if False:
        client_quotas.too_many_changes_are_refused
            change_quotas: len(records) > MAX_RECORDS_PER_USER_OP => False
    broker.quotas.throttling:Throttling.
        client_quotas.a_producer_is_throttled
            _throttle: self._mute(request.connection, throttle_ms) => pass
            _count: request.size_bytes => 1
        client_quotas.a_consumer_that_is_throttled_gets_nothing
            fetched: quota.take_back(*client, answer_bytes) => pass
    broker.quotas.client_quotas:Mutations.
        client_quotas.creations_above_the_quota_are_refused
            record: if throttle_ms: => if False:
            record: if not self._is_strict: => if False:
    broker.api.k00_produce:
        produce.two_batches_are_refused
            _check: _batch_size(records[size:]) is not None => False
        produce.a_size_below_the_least_is_corrupt
            _batch_size: raise CorruptMessageError(text) => return None
        produce.an_internal_topic_is_refused
            _check: is_internal(topic) and => False and
    broker.partitions:Partitions.
        fetch.a_deleted_topic_wakes_a_fetch
            drop_deleted: partition.changed() => pass
    broker.api.k50_describe_user_scram_credentials:
        users.a_user_named_twice_is_not_described
            _result: count > 1 => False
        users.a_user_that_does_not_exist_is_not_described
            _result: not infos => False
    broker.api.k51_alter_user_scram_credentials:
        users.a_user_is_changed_once_in_a_request
            _checked: changes.pop(one.name, None) is not None => False
        users.iterations_have_limits
            _change: iterations > MAX_ITERATIONS => False
            _change: iterations < MIN_ITERATIONS => False
        users.a_credential_is_removed
            _change: one.name not in image.scram_credentials.get(mechanism.type, {}) => False
        users.a_password_is_not_empty
            _change: not password => False
    broker.api.k01_fetch:_Fetch.
        fetch.an_open_transaction_is_hidden_from_read_committed
            _records: stable if self._is_committed else end => end
        fetch.a_replica_that_has_not_the_partition
            _read_one: self._request.body.replica_id >= 0 => False
        fetch.without_records_it_waits
            is_enough: >= self._min_bytes => >= 0
        client_quotas.a_session_is_not_begun_by_a_throttled_fetch
            _throttled: session is not None and self._is_first => False
    broker.partitions:Partition.
        fetch.a_leader_epoch_to_come_is_unknown
            check_leader_epoch: raise ApiError(ErrorCode.unknown_leader_epoch) => return
    broker.fetch_sessions:FetchSessions.
        fetch_sessions.a_wrong_epoch
            go_on: session.epoch != epoch => False
    broker.fetch_sessions:FetchSession.
        fetch_sessions.without_news_there_is_nothing
            is_news: return has_more or => return True or
    broker.topics:Topics.
        metadata.a_deleted_topic_is_told_once_before_it_is_created_again
            take_deleted: return found => return []
        topics.a_topic_that_exists
            check_new_name: name in image.topics => False
    storage.log.retention:
        timers.old_segments_are_deleted
            deletable_segments: now_ms - age_timestamp(segment) <= config.retention_ms => True
    storage.cleaning.cleaner_manager:
        timers.compaction_keeps_the_last_value_of_a_key
            examine: limit = max(start, limit) => limit = start
"""  # noqa: E501 - a fault is a line
"""Places, each with the checks that must see a fault there, and of each fault the function and what replaces what."""


def _mutants() -> Iterator[Mutant]:
    place = checks = ""
    for line in _FAULTS.splitlines():
        text = line.strip()
        if line.startswith(" " * 12):
            name, _, change = text.partition(": ")
            old, _, new = change.partition(" => ")
            yield Mutant(checks, Edit(f"{place}{name}", old, new))
        elif line.startswith(" " * 8):
            checks = text
        else:
            place = text


_COORDINATOR = "broker.transactions.coordinator:TransactionCoordinator."
MARKERS_ARE_NOT_WRITTEN = Edit(
    f"{_COORDINATOR}_complete",
    "partitions = sorted(metadata.partitions)",
    "return",
)
MUTANTS = [
    *_mutants(),
    Mutant(
        "restarts.a_decided_commit_is_completed",
        Edit(f"{_COORDINATOR}_resume", "self._complete(transaction, is_asked=False)", "pass"),
        MARKERS_ARE_NOT_WRITTEN,
    ),
]

_AUTHORIZER = "coordination.authorization.authorizer:"
ACL_FAULTS = [
    Edit(f"{_AUTHORIZER}Authorizer._look_up", "rights.allowed & ~rights.denied", "rights.allowed"),
    Edit(f"{_AUTHORIZER}Authorizer._look_up", "if principal in self._super_users", "if not self._super_users"),
    Edit(f"{_AUTHORIZER}_Acls.beginnings", "length <= len(name)", "length < len(name)"),
    Edit(f"{_AUTHORIZER}_Acls.about", "{name, WILDCARD}", "{name}"),
    Edit(f"{_AUTHORIZER}_Rights.with_acl", "implied = _IMPLIED.get(acl.operation, 0)", "implied = 0"),
    Edit(
        f"{_AUTHORIZER}_Rights.with_acl",
        "denied=self.denied | own",
        "denied=self.denied | _IMPLIED.get(acl.operation, own)",
    ),
    Edit(f"{_AUTHORIZER}_rights", "hosts.get(host, _NONE) | ", ""),
    Edit(f"{_AUTHORIZER}_rights", "hosts.get(host, _NONE)", "next(iter(hosts.values()))"),
    Edit(f"{_AUTHORIZER}_rights", "(principal, EVERYBODY)", "(principal,)"),
]
"""Faults of what access control lists allow: conformance has no checks of them, since its brokers ask nobody."""


def _place(where: str) -> tuple[Any, str, Any]:
    module_name, _, path = where.partition(":")
    owner: Any = importlib.import_module(f"odradek.{module_name}")
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    found = inspect.getattr_static(owner, name)
    return owner, name, found.fget if isinstance(found, property) else found


def _load_all() -> None:
    for one in pkgutil.walk_packages(odradek.broker.__path__, "odradek.broker."):
        importlib.import_module(one.name)


def plant(fault: Edit, patch: pytest.MonkeyPatch) -> None:
    """Plants a fault until the patch is undone.

    Raises:
        AssertionError: the source does not have the piece just once.
    """
    _load_all()
    owner, name, original = _place(fault.where)
    source = textwrap.dedent(inspect.getsource(original))
    assert source.count(fault.old) == 1, f"{fault.where} has no, or not just one, {fault.old!r}"
    names: dict[str, Any] = {}
    changed = source.replace(fault.old, fault.new).removeprefix("@property\n").removeprefix("@staticmethod\n")
    code = compile(changed, f"<mutant of {fault.where}>", "exec", features.annotations.compiler_flag)
    exec(code, original.__globals__, names)
    planted = names[name]
    if isinstance(owner, ModuleType):
        for module in [one for key, one in sys.modules.items() if key.startswith("odradek.")]:
            for attribute, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, attribute, planted)
        return
    as_was = type(inspect.getattr_static(owner, name))
    patch.setattr(owner, name, planted if as_was is FunctionType else as_was(planted))
