"""Random histories of members of both protocols in a group that moves between these: no partition has two owners."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.migration_policy import POLICIES
from odradek.coordination.groups.replay import Group
from peers.migrating_group import ClassicClient, ConsumerClient, World

TOPICS = ["t", "u"]


class History:
    """Clients that come, go, change their protocol and vanish, at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        counts = {"t": chance.randint(1, 5), "u": chance.randint(1, 3)}
        policy = chance.choice([*POLICIES, "bidirectional", "bidirectional"])
        self.world = World(counts, policy, chance.choice([0, 0, 1000]))
        self.clients: list[ConsumerClient | ClassicClient] = []
        self.made = 0
        self.kinds: Counter[str] = Counter()

    def start(self, instance: str | None, *, classic: bool) -> None:
        self.made += 1
        if classic:
            self.clients.append(ClassicClient(self.world, instance, TOPICS))
        else:
            self.clients.append(ConsumerClient(self.world, f"m{self.made}", instance, TOPICS))

    def step(self) -> None:
        chance = self.chance
        what = chance.choice(["join", "act", "act", "act", "act", "act", "act", "leave", "switch", "vanish", "time"])
        if what == "join" and len(self.clients) < 5:
            self.start(f"i{self.made}" if chance.random() < 0.4 else None, classic=chance.random() < 0.5)
        elif what == "time":
            self.world.clock.advance(chance.choice([0.1, 1, 1, 3, 8, 40]))
        elif self.clients:
            client = chance.choice(self.clients)
            if what == "act":
                client.act()
            elif what == "vanish":
                self.clients.remove(client)
            elif what == "leave":
                client.leave()
            elif what == "switch":
                # A rolling change: the client is stopped, and starts again with the other protocol.
                is_classic = isinstance(client, ClassicClient)
                if client.instance is None or (not is_classic and chance.random() < 0.5):
                    client.leave(-1 if client.instance is None else -2)
                self.clients.remove(client)
                self.start(client.instance, classic=not is_classic)

    def check(self) -> None:
        """Check what must be true at any time."""
        self.clients = [client for client in self.clients if not client.is_over]
        owned = Counter(partition for client in self.clients for partition in client.valid)
        assert not [one for one, count in owned.items() if count > 1], "a partition has two owners"
        group = self.world.group
        self.kinds[type(group).__name__] += 1
        if isinstance(group, ConsumerGroup):
            held = Counter(
                (topic, number)
                for member in group.members.values()
                for partitions in (member.assigned, member.revoked)
                for topic, numbers in partitions.items()
                for number in numbers
            )
            assert not [one for one, count in held.items() if count > 1], "the coordinator gave a partition twice"
            is_mixed = 0 < group.classic_count < len(group.members)
            self.kinds["mixed"] += is_mixed

    def check_log(self) -> None:
        """Check that another broker would load the same group."""
        for compacted in (False, True):
            assert facts(self.world.loaded(compacted=compacted)) == facts(self.world.group)

    async def run(self) -> None:
        for step in range(self.chance.randint(20, 80)):
            self.step()
            await self.world.settle()
            self.check()
            if not step % 10:
                self.check_log()
        await self.end()
        self.check_log()

    async def end(self) -> None:
        """Let the last one join, and all of them go on: they get all partitions, each one once."""
        group = self.world.group
        self.start(None, classic=isinstance(group, ClassicGroup))
        # Who vanished is removed after its session.
        for _ in range(100):
            for client in self.clients:
                client.act()
            self.world.clock.advance(1)
            await self.world.settle()
            self.check()
        owned = Counter(partition for client in self.clients for partition in client.owned)
        if any(isinstance(client, ConsumerClient) and not client.epoch for client in self.clients):
            # The policy keeps it out of a classic group.
            assert isinstance(self.world.group, ClassicGroup)
        assert owned == Counter(self.world.all_partitions)


def facts(group: Group | None) -> object:
    return isinstance(group, ConsumerGroup) and (
        group.epoch, group.metadata_hash, group.target_epoch, dict(sorted(group.members.items())),
        group.static_members, group.targets, group.names, group._owners, group.classic_count, group.classic_protocols,
    )  # fmt: skip


def history(seed: int) -> Counter[str]:
    found = History(seed)
    asyncio.run(found.run())
    return found.kinds


@pytest.mark.slow
def test_a_few_histories() -> None:
    for seed in range(3):
        history(seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seeds", [200, pytest.param(10_000, marks=pytest.mark.laboratory)])
def test_histories(seeds: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        try:
            seen += history(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    # They come to all kinds of groups.
    assert min(seen["ClassicGroup"], seen["ConsumerGroup"], seen["mixed"]) > 500
