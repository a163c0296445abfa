#!/usr/bin/env python3
"""Random mishaps of a store: `recovery.py PLATTER FOLDER SEED STEPS`.

Packs are away for a while, damaged, exchanged, copied, or come back from a backup; the catalog, the log or the index is lost; commands
are killed. Between these, disks are captured, forgotten and cloned, garbage is collected, and the store is rebuilt and healed. Never may
a version be exported with wrong bytes, or a number be used twice. At the end everything returns that was away. Then a rebuild must
make the store sound with every version, and no forgotten one; also after a collection.

Prints what is wrong, and ends with 1 then. The seed reproduces it, except for the moments of kills. Which mishaps happen depends on the seed.
"""

import filecmp
import glob
import json
import os
import random
import shutil
import subprocess
import sys
import time

BLOCK = 32 << 10
MISHAPS = ["away", "damage", "exchange", "backup", "kill", "lost", "encrypted"]


class Trial:
    def __init__(self, platter, folder, seed):
        self.platter, self.folder, self.store = platter, folder, f"{folder}/store"
        self.dice = random.Random(seed)
        self.mishaps = {"away"} | set(self.dice.sample(MISHAPS, 3))
        self.pool = [self.dice.randbytes(BLOCK) for _ in range(200)]
        self.versions, self.forgotten = {}, set()  # (image, number) -> file with its bytes
        self.away, self.changed, self.backup = {}, {}, {}  # path of a pack -> its file elsewhere
        self.disks, self.wrong, self.log = 0, [], []
        os.makedirs(folder)
        key = ["--encrypt", "--new-file", f"{folder}/key"] if "encrypted" in self.mishaps else []
        os.environ["PLATTER_UNLOCK_FILE"] = f"{folder}/key"
        self.run("init", *key)

    def command(self, *arguments):
        return [self.platter, "-q", "--store", self.store, *arguments]

    def run(self, *arguments):
        ended = subprocess.run(self.command(*arguments), capture_output=True, stdin=subprocess.DEVNULL, timeout=300, check=False)
        said = (ended.stdout + ended.stderr).decode(errors="replace")
        self.log.append(f"{' '.join(arguments)}: {ended.returncode} {said[:500]}")
        if ended.returncode < 0 or ended.returncode == 101:
            self.complain(f"{arguments} crashed: {said[:1000]}")
        return ended.returncode, said

    def complain(self, what):
        self.wrong.append(what)
        self.log.append(f"WRONG: {what}")

    def is_undisturbed(self):
        # What was damaged counts as such until a check reads it again.
        return not self.away and not self.mishaps & {"kill", "damage", "exchange"}

    # ------------------------------------------------------------------ work

    def new_disk(self):
        self.disks += 1
        path, first = f"{self.folder}/disk{self.disks}", self.dice.randrange(200)
        with open(path, "wb") as disk:
            for number in range(self.dice.randrange(8, 40)):
                is_new = self.dice.random() < 0.2
                disk.write(self.dice.randbytes(BLOCK) if is_new else self.pool[(first + number) % 200])
        return path

    def capture(self):
        image, disk = self.dice.choice(["a", "b", "c/d"]), self.new_disk()
        code, said = self.run("--json", "capture", "--raw", disk, image)
        if code == 0:
            name = (image, json.loads(said.splitlines()[-1])["number"])
            if name in self.versions or name in self.forgotten:
                self.complain(f"the number of {name} was used twice")
            self.versions[name] = disk
        elif self.is_undisturbed():
            self.complain(f"a capture failed: {said}")

    def forget(self):
        if self.versions:
            image, number = name = self.dice.choice(sorted(self.versions))
            if self.run("forget", f"{image}@{number}")[0] == 0:
                self.forgotten.add(name)
                del self.versions[name]

    def clone(self):
        if self.versions:
            image, number = name = self.dice.choice(sorted(self.versions))
            clone = f"clone{self.dice.randrange(10**9)}"
            if self.run("clone", f"{image}@{number}", clone)[0] == 0:
                self.versions[clone, 1] = self.versions[name]

    def collect(self):
        more = [["--keep-trash", "0"], ["--recompress", "9"], ["--compact", "100"]]
        chosen = [option for option in more if self.dice.random() < 0.5]
        code, said = self.run("gc", "--yes", *sum(chosen, []))
        if code and self.is_undisturbed():
            self.complain(f"a collection failed: {said}")

    def rebuild(self):
        code, said = self.run("rebuild")
        if code and self.is_undisturbed():
            self.complain(f"a rebuild of a sound store failed: {said}")

    def heal(self):
        disks = sorted(set(self.versions.values()))
        chosen = self.dice.sample(disks, min(len(disks), self.dice.randrange(3)))
        self.run("heal", *sum((["--from", disk] for disk in chosen), []))

    def read_all(self, must_be_there):
        for (image, number), disk in sorted(self.versions.items()):
            out = f"{self.folder}/out"
            if os.path.exists(out):
                os.unlink(out)
            code, said = self.run("export", f"{image}@{number}", out)
            if code == 0 and not filecmp.cmp(out, disk, shallow=False):
                self.complain(f"{image}@{number} has wrong bytes")
            elif code and must_be_there:
                self.complain(f"{image}@{number} is lost: {said}")

    # ----------------------------------------------------------------- mishaps

    def packs(self):
        return sorted(glob.glob(f"{self.store}/packs/*/*.pack"))

    def any_pack(self):
        packs = [pack for pack in self.packs() if pack not in self.changed]
        return self.dice.choice(packs) if packs else None

    def kept(self, kind, pack):
        return f"{self.folder}/{kind}-{os.path.basename(pack)}"

    def take_away(self):
        if pack := self.any_pack():
            self.away[pack] = self.kept("away", pack)
            shutil.move(pack, self.away[pack])

    def bring_back(self):
        if self.away:
            pack = self.dice.choice(sorted(self.away))
            kept = self.away.pop(pack)
            if not os.path.exists(pack):
                os.makedirs(os.path.dirname(pack), exist_ok=True)
                shutil.move(kept, pack)

    def keep(self, pack):
        self.changed[pack] = self.kept("sound", pack)
        shutil.copy2(pack, self.changed[pack])

    def damage(self):
        if not (pack := self.any_pack()):
            return
        self.keep(pack)
        length = os.path.getsize(pack)
        at = self.dice.choice([self.dice.randrange(length), max(0, length - self.dice.randrange(1, 400)), self.dice.randrange(min(length, 200))])
        with open(pack, "r+b") as file:
            match self.dice.randrange(3):
                case 0:
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 0x55]))
                case 1:
                    file.truncate(at)
                case _:
                    file.seek(0, os.SEEK_END)
                    file.write(self.dice.randbytes(self.dice.randrange(1, 300)))

    def exchange(self):
        one, other = self.any_pack(), self.any_pack()
        if one and one != other:
            self.keep(one)
            self.keep(other)
            shutil.copy2(self.changed[one], other)
            shutil.copy2(self.changed[other], one)

    def mend(self):
        if self.changed:
            pack = self.dice.choice(sorted(self.changed))
            os.makedirs(os.path.dirname(pack), exist_ok=True)
            shutil.move(self.changed.pop(pack), pack)

    def back_up(self):
        for pack in self.packs():
            if pack not in self.backup and pack not in self.changed:
                self.backup[pack] = self.kept("backup", pack)
                shutil.copy2(pack, self.backup[pack])

    def restore(self):
        for pack, kept in self.backup.items():
            if not os.path.exists(pack) and pack not in self.away and pack not in self.changed and self.dice.random() < 0.5:
                os.makedirs(os.path.dirname(pack), exist_ok=True)
                shutil.copy2(kept, pack)

    def kill(self):
        commands = [["gc", "--yes", "--keep-trash", "0", "--compact", "100"], ["rebuild"], ["heal"], ["capture", "--raw", self.new_disk(), "killed"]]
        arguments, quiet = self.dice.choice(commands), subprocess.DEVNULL
        process = subprocess.Popen(self.command(*arguments), stdout=quiet, stderr=quiet, stdin=quiet)
        time.sleep(self.dice.random() * 0.15)
        process.kill()
        process.wait()
        self.log.append(f"killed: {arguments}")

    def lose(self):
        lost = self.dice.choice(["catalog.sqlite", "changes.log", "index"])
        path = f"{self.store}/{lost}"
        self.log.append(f"lost: {lost}")
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.unlink(path)
        self.run("rebuild")

    # -------------------------------------------------------------------- trial

    def go(self, steps):
        work = {self.capture: 6, self.forget: 3, self.clone: 1, self.collect: 4, self.rebuild: 4, self.heal: 1}
        work[lambda: self.run("check", "--read-data")] = 1
        work[lambda: self.run("discard-interrupted")] = 3
        of_mishaps = {
            "away": {self.take_away: 5, self.bring_back: 5},
            "damage": {self.damage: 3, self.mend: 3},
            "exchange": {self.exchange: 2, self.mend: 2},
            "backup": {self.back_up: 2, self.restore: 3},
            "kill": {self.kill: 4},
            "lost": {self.lose: 2},
        }
        for mishap in sorted(self.mishaps - {"encrypted"}):
            work |= of_mishaps[mishap]
        for _ in range(4):
            self.capture()
        for step in self.dice.choices(list(work), list(work.values()), k=steps):
            step()
            if self.dice.random() < 0.1:
                self.read_all(False)
        while self.away:
            self.bring_back()
        while self.changed:
            self.mend()
        # Only the second check reads packs that the rebuild took over, and finds that what was damaged is sound again.
        for command in [["check", "--read-data"], ["rebuild"], ["check", "--read-data"], ["heal"]]:
            self.run(*command)
        for command in [["check", "--read-data"], ["gc", "--yes", "--keep-trash", "0", "--compact", "100"], ["rebuild"], ["check", "--read-data"]]:
            code, said = self.run(*command)
            if code:
                self.complain(f"{command} at the end: {code} {said}")
            self.read_all(True)
        for image, number in sorted(self.forgotten):
            if self.run("show", f"{image}@{number}")[0] == 0:
                self.complain(f"{image}@{number} was forgotten, and is back")


def main():
    trial = Trial(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    trial.go(int(sys.argv[4]))
    print(f"{', '.join(sorted(trial.mishaps))}: {len(trial.versions)} versions")
    if trial.wrong:
        print("\n".join(trial.log[-200:]))
        print("\n".join(trial.wrong))
        sys.exit(1)


main()
