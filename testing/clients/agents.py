# SPDX-License-Identifier: MIT OR Apache-2.0
"""Two NIXL agents, a process each, that move memory through NIXL's LIBFABRIC back end.

The initiator writes into the target's memory and reads from it: single transfers from 1 byte to
16 MiB, many transfers in flight at once, and transfers of many pieces each. A notification follows
every transfer, and the side that receives data verifies all of its memory. Exits with 0 only if
every byte and every notification is right.
"""
import multiprocessing
import sys
import time
import types

import numpy as np

# NIXL's bindings import torch, whose tensors this program does not use.
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = type("Tensor", (), {})

LENGTH = 16 << 20
SIZES = [1, 7, 64, 4096, 65537, 1 << 20, LENGTH - 1, LENGTH]
FLYING = 64
PIECES = 256
PATIENCE = 60
BACKENDS = ["LIBFABRIC"]


def pattern(seed):
    return np.random.default_rng(seed).integers(0, 256, LENGTH, dtype=np.uint8)


def until(what, done):
    """Polls `done` until it returns something true."""
    end = time.monotonic() + PATIENCE
    while not (result := done()):
        if time.monotonic() > end:
            raise TimeoutError(what)
    return result


class Side:
    """One side: an agent, registered memory, and a pipe to the other process."""

    def __init__(self, name, pipe):
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(backends=BACKENDS))
        self.memory = np.zeros(LENGTH, dtype=np.uint8)
        self.base = self.memory.ctypes.data
        self.regions = self.agent.register_memory([(self.base, LENGTH, 0, "")], "DRAM", BACKENDS)
        self.pipe = pipe
        pipe.send((self.agent.get_agent_metadata(), self.base))
        metadata, self.peer_base = self.tell()
        self.peer = self.agent.add_remote_agent(metadata)

    def tell(self):
        """Receives an object from the other process."""
        if not self.pipe.poll(PATIENCE):
            raise TimeoutError("the other process")
        return self.pipe.recv()

    def expect(self, wanted, what):
        wrong = np.flatnonzero(self.memory != wanted)
        if wrong.size:
            raise AssertionError(f"{what}: {wrong.size} bytes are wrong, the first at {wrong[0]}")

    def close(self):
        self.agent.deregister_memory(self.regions, BACKENDS)


class Initiator(Side):
    def transfers(self, op, lists):
        """Starts a transfer for each list of (offset, length), then waits for all of them."""
        agent, flying = self.agent, []
        for number, pieces in enumerate(lists):
            here = agent.get_xfer_descs([(self.base + at, n, 0) for at, n in pieces], "DRAM")
            there = agent.get_xfer_descs([(self.peer_base + at, n, 0) for at, n in pieces], "DRAM")
            handle = agent.initialize_xfer(op, here, there, self.peer, f"{op} {number}".encode(), BACKENDS)
            flying.append((handle, agent.transfer(handle)))
        for handle, state in flying:
            while state == "PROC":
                state = until(op, lambda: self.news(handle))
            if state != "DONE":
                raise AssertionError(f"{op}: {state}")
            agent.release_xfer_handle(handle)

    def news(self, handle):
        state = self.agent.check_xfer_state(handle)
        return state if state != "PROC" else None

    def round(self, seed, lists):
        """Writes the pieces, then reads them back after the target has changed them."""
        mine, theirs = pattern(seed), pattern(seed + 1)
        self.memory[:] = mine
        self.pipe.send((seed, lists))
        if self.tell() != "ready":
            raise AssertionError("the target is not ready")
        self.transfers("WRITE", lists)
        if self.tell() != "changed":
            raise AssertionError("the target has not changed its memory")
        self.transfers("READ", lists)
        for at, n in (piece for pieces in lists for piece in pieces):
            mine[at : at + n] = theirs[at : at + n]
        self.expect(mine, "what was read")
        if self.tell() != "noticed":
            raise AssertionError("the target has not noticed the reads")

    def run(self):
        for step, size in enumerate(SIZES):
            self.round(2 * step, [[(0, size)]])
        part = LENGTH // FLYING
        self.round(100, [[(at, part - 3)] for at in range(0, LENGTH, part)])
        # Pieces with gaps, because NIXL makes one of those that are adjacent.
        step = part // PIECES
        self.round(102, [[(at + i * step, step // 2) for i in range(PIECES)] for at in range(0, LENGTH, part)])
        self.pipe.send(None)


class Target(Side):
    def notified(self, op, count):
        """Waits for one notification of each transfer."""
        missing = {f"{op} {number}".encode() for number in range(count)}

        def news():
            for peer, messages in self.agent.get_new_notifs(BACKENDS).items():
                for message in messages:
                    if message not in missing:
                        raise AssertionError(f"{peer} notified of {message}")
                    missing.remove(message)
            return not missing

        until(f"{len(missing)} notifications of {op}", news)

    def run(self):
        while (order := self.tell()) is not None:
            seed, lists = order
            theirs, wanted = pattern(seed), np.zeros(LENGTH, dtype=np.uint8)
            self.memory[:] = 0
            self.pipe.send("ready")
            for at, n in (piece for pieces in lists for piece in pieces):
                wanted[at : at + n] = theirs[at : at + n]
            self.notified("WRITE", len(lists))
            self.expect(wanted, "what was written")
            self.memory[:] = pattern(seed + 1)
            self.pipe.send("changed")
            self.notified("READ", len(lists))
            self.pipe.send("noticed")


def act(side, name, pipe):
    actor = side(name, pipe)
    actor.run()
    actor.close()


def main():
    near, far = multiprocessing.Pipe()
    # Not forked: a child would inherit a library that has been loaded and may have threads.
    target = multiprocessing.get_context("spawn").Process(target=act, args=(Target, "target", far), daemon=True)
    target.start()
    far.close()
    act(Initiator, "initiator", near)
    target.join(PATIENCE)
    if target.exitcode != 0:
        raise AssertionError(f"the target ended with {target.exitcode}")
    print("all right")


if __name__ == "__main__":
    main()
