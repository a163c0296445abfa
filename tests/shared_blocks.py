#!/usr/bin/env python3
"""tests/shared_blocks.py make DIR SEED COUNT
tests/shared_blocks.py expect GRID DISK...

`make` creates COUNT raw disks out of one pool of random cells: some cells are on several disks, some several times on one, some
are zero, some end with zeros. `expect` prints what `platter analyze --json` must find on such disks if they are cut at multiples
of GRID bytes and zeros at the ends of blocks are left out: computed without Platter, by comparing the blocks themselves.
"""
import hashlib
import json
import random
import sys

CELL = 32 << 10
SECTOR = 512


def make(directory, seed, count):
    chance = random.Random(seed)
    pool = [hashlib.shake_128(f"{seed} {number}".encode()).digest(CELL) for number in range(90)]
    for number in range(count):
        with open(f"{directory}/disk-{number}", "wb") as disk:
            for _ in range(chance.randrange(60, 90)):
                # Neighbours on the list have much in common.
                cell = pool[(number * 12 + chance.randrange(40)) % len(pool)]
                kind = chance.randrange(10)
                if kind == 0:
                    cell = bytes(CELL)
                elif kind < 3:
                    kept = SECTOR * (1 + cell[0] % 60)
                    cell = cell[:kept] + bytes(CELL - kept)
                disk.write(cell)
            disk.write(pool[number][: 5 * SECTOR])


def blocks(path, grid):
    with open(path, "rb") as disk:
        while block := disk.read(grid):
            sectors = [block[at : at + SECTOR] for at in range(0, len(block), SECTOR)]
            while sectors and not any(sectors[-1]):
                sectors.pop()
            if sectors:
                yield b"".join(sectors)


def expect(grid, paths):
    listed = [list(blocks(path, grid)) for path in paths]
    distinct = [set(own) for own in listed]
    size = lambda found: sum(map(len, found))
    elsewhere = [
        set().union(*(other for at, other in enumerate(distinct) if at != own)) for own in range(len(distinct))
    ]
    every = set().union(*distinct)
    images = [
        {
            "data_bytes": size(own),
            "blocks": len(single),
            "distinct_bytes": size(single),
            "shared_bytes": size(single & others),
            "unique_bytes": size(single - others),
        }
        for own, single, others in zip(listed, distinct, elsewhere)
    ]
    shared = sum(image["shared_bytes"] for image in images)
    summed = sum(image["distinct_bytes"] for image in images)
    print(
        json.dumps(
            {
                "images": images,
                "total": {
                    "data_bytes": sum(map(size, listed)),
                    "blocks": len(every),
                    "distinct_bytes": size(every),
                    "dedup_ratio": round(sum(map(size, listed)) / size(every), 6),
                    "cross_similarity": round(shared / summed, 6),
                },
                "overlap_bytes": [[size(a & b) for b in distinct] for a in distinct],
            }
        )
    )


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    expect(int(sys.argv[2]), sys.argv[3:])
