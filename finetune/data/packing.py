"""Sequence packing: samples of different lengths, side by side in rows of one length.

Best fit decreasing: the longest first, each into the fullest row that still has room (Johnson et al. 1974; for training
Krell et al. 2021, "Efficient sequence packing without cross-contamination", arXiv:2107.02027).
"""

from collections import defaultdict
from collections.abc import Sequence


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Return rows of indices into `lengths`, each row at most `capacity` in total. The result is deterministic.

    Raise ValueError for a length outside 1 to `capacity`.
    """
    rows: list[list[int]] = []
    by_room: dict[int, list[int]] = defaultdict(list)  # remaining room -> rows
    rooms = 0  # bit n is set if a row has room n: one shift finds the smallest room that suffices
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        length = int(lengths[index])
        if not 1 <= length <= capacity:
            raise ValueError(f"sample {index} has {length} tokens; a row takes 1 to {capacity}")
        wide_enough = rooms >> length
        if wide_enough:
            room = length + (wide_enough & -wide_enough).bit_length() - 1
            row = by_room[room].pop()
            if not by_room[room]:
                rooms ^= 1 << room
        else:
            room, row = capacity, len(rows)
            rows.append([])
        rows[row].append(index)
        by_room[room - length].append(row)
        rooms |= 1 << (room - length)
    return rows
