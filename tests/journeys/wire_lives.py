"""Random lives of two or three services over wires that cut, delay, double and flip, before a naive judge.

Targets, metadata and whole machines are put back in between; a replica id may be used twice.
Source: issue 15, B7.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.journeys.wire_sites import SICKER, Node, Services, Star, Wrong

STEPS = 8
PUT_BACK = ("target", "metadata", "both", "both", "machine")


class Life:
    """One trial.

    Attributes:
        star: its replicas; `star.happened` counts.
    """

    def __init__(self, seed: int, services: Services) -> None:
        self.random = Random(seed)
        count = self.random.choice((2, 3))
        rids = list(range(1, count + 1))
        self.is_doubled = count == 3 and self.random.random() < 0.3
        if self.is_doubled:
            rids[2] = rids[self.random.randrange(2)]
        self.star: Star = services.star(*rids, faults=SICKER)
        self.number = 0
        self.star.happened["doubled replica ids"] += self.is_doubled
        for node in self.star.nodes:
            self.write(node)
        self.kept = {node.store: [node.back_up()] for node in self.star.nodes}

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        for supplier in self.star.nodes:
            for consumer in self.star.nodes:
                if supplier is not consumer:
                    self.star.bring(supplier, consumer)
        self.star.happened["acknowledged"] += sum(node.acknowledged for node in self.star.nodes)

    def step(self) -> None:
        chance, node = self.random.random(), self.random.choice(self.star.nodes)
        other = self.random.choice([each for each in self.star.nodes if each is not node])
        if chance < 0.30:
            self.write(node)
        elif chance < 0.65:
            self.star.bring(node, other)
        elif chance < 0.73:
            if self.random.random() < 0.7:
                self.star.grant(node, other)
            self.star.bring(node, other, mode="TOTAL")
        elif chance < 0.77:
            self.star.grant(node, other)
            self.star.bring(node, other, mode="TOTAL", discard=True)
        elif chance < 0.83:
            self.kept[node.store].append(node.back_up())
        else:
            self.put_back(node)

    def put_back(self, node: Node) -> None:
        what, kept = self.random.choice(PUT_BACK), self.random.choice(self.kept[node.store])
        if what == "machine":
            node.put_back_machine(kept)
            self.star.look_again(node)
        else:
            node.put_back(kept, target=what != "metadata", metadata=what != "target")
        self.star.happened[f"put back: {what}"] += 1
        if self.random.random() < 0.7:
            self.write(node)

    def write(self, node: Node) -> None:
        count = self.random.randint(1, 4)
        node.put(*(f"{self.number + each}" for each in range(count)))
        self.number += count


def live(services: Services, seeds: range) -> str:
    """Live one life after the other; a line that tells what happened.

    Raises: Wrong.
    """
    happened: Counter[str] = Counter()
    for seed in seeds:
        life = Life(seed, services)
        try:
            life.run()
        except Wrong as wrong:
            raise Wrong(f"seed {seed}: {wrong}") from wrong
        happened += life.star.happened
        print(f"seed {seed}: {dict(life.star.happened)}", flush=True)
    told = ", ".join(f"{count} {what}" for what, count in sorted(happened.items()))
    wire = ", ".join(f"{count} {what}" for what, count in sorted(services.suffered().items()))
    line = f"{len(seeds)} random histories over three services, seeds {seeds.start} to {seeds.stop - 1}: "
    line += f"0 lost, 0 double, 0 green while different; {told}; on the wire {wire}"
    print(line)
    return line
