"""Tables of the device addresses of resident adapters' weights, by slot: one table per fused module.

The tables of all linears are side by side, and so are those of all experts. Loading or evicting an adapter is one copy
for each kind rather than one per module.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from loragate.kernels.base_output import Affine
from loragate.kernels.lora_weights import LoraWeights
from loragate.kernels.transfers import to_device

MEMBER_FIELDS = 5  # first rank, ranks, addresses of B, scale and shift; 0 means none
SLOT_FIELDS = 2  # address of A and ranks of all members; the members' fields follow
_MAX_BLOCKS = 64  # about the number that a tile has
_ALIGNMENT = 2  # fields; kernels are compiled for addresses that are multiples of 16 bytes, and again for others


class SlotMemory:
    """One row per place with the fields of all tables: [places of all slots, fields of all tables].

    All tables have equally many places per slot.
    """

    def __init__(self, slots: int, tables: Sequence["SlotTable"], device: torch.device) -> None:
        widths = [-(-table.width // _ALIGNMENT) * _ALIGNMENT for table in tables]
        self.places = tables[0].places
        self.fields = torch.zeros(slots * self.places, sum(widths), dtype=torch.int64, device=device)
        self.used = torch.zeros(len(tables), dtype=torch.int64, device=device)
        self._tables = tables
        self._host = np.zeros(self.fields.shape, dtype=np.int64)
        self._changed: set[int] = set()
        for i, table in enumerate(tables):
            table.move(self, i, sum(widths[:i]))

    def write(self, slot: int, start: int, fields: npt.NDArray[np.int64]) -> None:
        """Write fields [places, fields] that take effect on the device with the next `send`."""
        self._host[self._rows(slot), start : start + fields.shape[1]] = fields
        self._changed.add(slot)

    def send(self) -> None:
        """Copy the changed rows to the device, ordered after everything launched so far, without waiting."""
        for slot in self._changed:
            rows = self._rows(slot)
            self.fields[rows].copy_(to_device(self._host[rows], self.fields.device))
        if self._changed:
            self.used.copy_(to_device([table.slots_with_weights for table in self._tables], self.used.device))
        self._changed.clear()

    def _rows(self, slot: int) -> slice:
        return slice(slot * self.places, (slot + 1) * self.places)


class SlotTable:
    """Device addresses of the weights of one fused module's adapters, by slot.

    `widths` are the outputs of its members. A slot may take several places, which work lists name individually: those
    of slot 1 are `places` to 2 · `places` − 1.
    """

    def __init__(
        self, widths: Sequence[int], in_features: int, dtype: torch.dtype, device: torch.device, places: int = 1
    ) -> None:
        self.in_features, self.dtype, self.device = in_features, dtype, device
        self.places = places
        self._start = 0  # the start of this table within `_memory`
        self._starts = [sum(widths[:i]) for i in range(len(widths))]
        self._widths = tuple(widths)
        # the columns of the addresses of A, and of each member's B, scale and shift
        self._addresses = [0, *(SLOT_FIELDS + MEMBER_FIELDS * m + f for m in range(len(widths)) for f in (2, 3, 4))]
        self._fields = torch.zeros(1, SLOT_FIELDS + MEMBER_FIELDS * len(widths), dtype=torch.int64, device=device)
        self._used = torch.zeros(1, dtype=torch.int64, device=device)
        self._memory: SlotMemory | None = None
        self._ranks: dict[int, int] = {}
        self._reserved = 0
        self._blocks: dict[int, Tensor] = {}

    def reserve(self, slots: int, rank: int) -> None:
        """Reserve room for `slots` slots with adapters of at most this rank.

        From then on, launches are alike and read the same memory regardless of which adapters are resident.
        """
        self._fields = F.pad(self._fields, (0, 0, 0, max(0, slots * self.places - self._fields.shape[0])))
        self._reserved = rank

    def put(self, slot: int, weights: LoraWeights) -> None:
        """Register the weights for all launches from now on; the caller keeps them alive."""
        members = [[0] * MEMBER_FIELDS for _ in self._widths]
        for expand in weights.expands:
            members[self._starts.index(expand.out_start)][:3] = [
                expand.rank_start,
                expand.b.shape[0],
                expand.b.data_ptr(),
            ]
        for change in weights.base_changes:
            if isinstance(change, Affine):
                self._put_affine(members, change)
        fields = [weights.a.data_ptr(), weights.rank, *(number for member in members for number in member)]
        self.put_fields(slot, np.array([fields]), weights.rank)

    def put_fields(self, slot: int, fields: npt.NDArray[np.int64], rank: int) -> None:
        """Register, for each place of the slot, the address of A, the ranks of all members, and the members' fields."""
        assert not self._reserved or rank <= self._reserved
        assert not (self.aligned and (fields[:, self._addresses] % 16).any())
        missing = (slot + 1) * self.places - self._fields.shape[0]
        if missing > 0:
            assert not self._reserved, "captured launches read the table where it is"
            self._fields = F.pad(self._fields, (0, 0, 0, missing))
        self._ranks[slot] = rank
        self._write(slot, fields)

    def clear(self, slot: int) -> None:
        if self._ranks.pop(slot, None) is not None:
            self._write(slot, np.zeros((self.places, self.width), dtype=np.int64))

    def move(self, memory: "SlotMemory", index: int, start: int) -> None:
        """Become that table of the memory, from its field `start` on."""
        assert not self._ranks
        assert self.places == memory.places
        self._fields = memory.fields[:, start : start + self.width]
        self._used = memory.used[index : index + 1]
        self._memory, self._start = memory, start

    @property
    def aligned(self) -> bool:
        """Whether everything that programs read begins at a multiple of 16 bytes.

        All tensors of adapters do, and so do their rows if their lengths are multiples of 16.
        """
        return all(size % 16 == 0 for size in (self.in_features, *self._widths))

    @property
    def widest(self) -> int:
        """The largest sum of ranks of a slot that a launch must serve; 0 while nothing is resident or reserved."""
        return self._reserved or max([0, *self._ranks.values()])

    @property
    def is_used(self) -> bool:
        """Whether launches may find weights in the table."""
        return bool(self._ranks or self._reserved)

    @property
    def slots_with_weights(self) -> int:
        return len(self._ranks)

    @property
    def used(self) -> Tensor:
        """The number of slots with weights, on the device: [1]."""
        return self._used

    @property
    def fields(self) -> Tensor:
        """The table on the device: [places of all slots, fields of a place]."""
        return self._fields

    @property
    def width(self) -> int:
        """The number of fields of a place."""
        return self._fields.shape[1]

    def _write(self, slot: int, fields: npt.NDArray[np.int64]) -> None:
        if self._memory is not None:
            self._memory.write(slot, self._start, fields)
        else:
            places = slice(slot * self.places, (slot + 1) * self.places)
            self._fields[places].copy_(to_device(fields, self._fields.device))
            self._used.fill_(len(self._ranks))

    def _put_affine(self, members: list[list[int]], change: Affine) -> None:
        """Write the addresses of an affine change, which spans members: each member gets that of its own part."""
        item = change.shift.element_size()
        for member, start, width in zip(members, self._starts, self._widths, strict=True):
            offset = start - change.out_start
            if 0 <= offset < change.shift.shape[0]:
                assert offset + width <= change.shift.shape[0]
                member[4] = change.shift.data_ptr() + offset * item
                member[3] = 0 if change.scale is None else change.scale.data_ptr() + offset * item

    def blocks(self, size: int) -> Tensor:
        """Return blocks of columns, each within one member: its index, columns at which the block begins and ends, and
        those of the member.

        They have `size` columns, or a multiple of it if there would be too many: most programs of a large module have
        nothing to do where adapters leave it alone.
        """
        size *= max(1, -(-sum(self._widths) // (size * _MAX_BLOCKS)))
        if size not in self._blocks:
            rows = [
                (member, column, min(column + size, start + width), start, start + width)
                for member, (start, width) in enumerate(zip(self._starts, self._widths, strict=True))
                for column in range(start, start + width, size)
            ]
            self._blocks[size] = torch.tensor(rows, dtype=torch.int64, device=self._fields.device)
        return self._blocks[size]
