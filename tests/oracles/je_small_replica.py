"""A replicated node of the small store: entries with VLSNs, and the range record of their index."""

from tests.oracles.je_log_bytes import TIME_MS, packed
from tests.oracles.je_small_engine import SmallEngine, Txn

RANGE_KEY = bytes([0x7F]) + b"\xff" * 7
INDEX_NAME = "_jeVlsnMapDb"


class SmallReplica(SmallEngine):
    def __init__(self, seed: int, *, file_bytes: int = 4000) -> None:
        super().__init__(seed, file_bytes=file_bytes)
        self.log.next_vlsn = 1
        self.index = self.create(INDEX_NAME)

    def write_range(self, first: int, txn: Txn | None = None) -> None:
        """Say that the index covers the VLSNs from `first` on."""
        assert self.log.next_vlsn is not None
        last = self.log.next_vlsn - 1
        value = packed(1) + b"".join(packed(each) for each in (first, last, last, last))
        self.write(self.index, RANGE_KEY, value, txn)

    def offsets_of(self, number: int) -> list[int]:
        """Where a file's entries begin."""
        data, at, found = self.log.files[number], 0, []
        while at < len(data):
            found.append(at)
            header = 22 if data[at + 5] & 0x28 and data[at + 4] != 25 else 14
            at += header + int.from_bytes(data[at + 10 : at + 14], "little")
        return found

    def vlsns_of(self, number: int) -> list[int]:
        """The VLSNs of a file's entries, in order."""
        data = self.log.files[number]
        return [
            int.from_bytes(data[at + 14 : at + 22], "little")
            for at in self.offsets_of(number)
            if data[at + 5] & 0x28 and data[at + 4] != 25
        ]

    def truncate_index(self, number: int, txn: Txn | None = None) -> bool:
        """Take a file, and all before it, out of the index; False where it has no VLSN."""
        vlsns = self.vlsns_of(number)
        if vlsns:
            self.write_range(max(vlsns) + 1, txn)
        return bool(vlsns)

    def roll_back_to_here(self, count: int, *, commit: bool) -> None:
        """Transactions of a lost master: written, perhaps committed, then made invisible in place.

        A syncup writes the start, sets the flags of what it rolls back, and writes the end.
        """
        begin, mark = self.log.next_vlsn, self.log.end
        txn = self.begin()
        tree = self.chance.choice([each for each in self.users() if not each.is_removing])
        for number in range(count):
            self.write(tree, b"k%d%d" % (number, self.chance.randrange(4)), self.chance.randbytes(40), txn)
        if self.chance.random() < 0.5:
            self.evict(tree, self.chance.choice(tree.bins))
        if commit:
            self.log.end_txn(txn.id, commit=True)
        self.roll_back(txn)
        del self.txns[txn.id]
        assert begin is not None
        start = self.log.append(28, packed(begin - 1) + packed(mark) + packed(TIME_MS) + packed(0))
        self.hide(mark)
        self.log.append(29, packed(mark) + packed(start) + packed(TIME_MS))

    def hide(self, mark: int) -> None:
        """Set the invisible flag on all VLSNs from a place on."""
        for number in [each for each in self.log.files if each >= mark >> 32]:
            for offset in self.offsets_of(number):
                data, lsn = self.log.files[number], (number << 32) + offset
                if lsn >= mark and data[offset + 5] & 0x28 and data[offset + 4] != 25:
                    data[offset + 5] |= 0x10
