//! The limits that this project sets itself.

use crate::bench::case::{Buffers, Case, Counted, Endpoint, Interface, MIB, Pattern, Progress, Provider, Wait};

/// A performance limit of this project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// For the ratio to the rival.
    Rival(f64),
    /// For the ratio to the bare medium.
    Bare(f64),
    /// For the ratio to our own two-sided message.
    Message(f64),
    /// For the ratio of futures to our C interface.
    C(f64),
    /// For the ratio to MPICH over our library.
    Mpich(f64),
    /// For the value itself.
    Value(f64),
    /// The same, or the rival's worst value if that is worse.
    ValueOrRival(f64),
}

impl Case {
    /// The limits of the case.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        use {Bar::*, Pattern::*, Provider::*};
        if self.counted != Counted::Value {
            return Vec::new();
        }
        if self.interface == Interface::Futures {
            return vec![C(if self.unit().less_is_better { 1.1 } else { 1.0 / 1.1 })];
        }
        // A window of one message is a round trip.
        let plain = self.is_plain() && self.window > 1 && self.buffers != Buffers::Cold;
        match (self.provider, self.pattern, self.size) {
            (Shm, Latency, 8) if plain => vec![Rival(0.6)],
            (Shm, Latency, 64) if plain => vec![Rival(0.7)],
            (Shm, Latency, 4096) if plain => vec![Rival(0.85)],
            (Shm, Latency, 65_536) if plain => vec![Rival(0.75)],
            (Shm, Latency, 262_144) if plain => vec![Rival(0.7)],
            (Shm, Latency, MIB) if plain => vec![Rival(0.65)],
            (Shm, Latency, MIB) if self.buffers == Buffers::Cold => vec![Rival(0.83)],
            (Shm, Rate, 8) if plain && self.window == 64 => vec![Rival(1.6)],
            (Shm, Stream, 65_536 | MIB) if plain => vec![Rival(1.5)],
            (Shm, Stream, 4_194_304) if plain => vec![Rival(1.6)],
            (Tcp, Latency, 8 | 64 | 4096) if plain => vec![Rival(0.95), Bare(1.12)],
            (Tcp, Latency, 65_536) if plain => vec![Rival(0.85)],
            (Tcp, Latency, MIB) if plain => vec![Rival(0.6)],
            (Tcp, Rate, 8) if plain && self.window == 64 => vec![Rival(10.0)],
            (Tcp, Stream, 65_536) if plain => vec![Rival(1.5), Bare(0.95)],
            (Tcp, Stream, MIB) if plain => vec![Rival(2.0), Bare(0.95)],
            (Udp, Latency, 64) if plain => vec![Bare(1.15)],
            (Tcp, Write, 65_536) | (Tcp, Read, MIB) => vec![Rival(2.5)],
            (Shm, Write, 65_536) | (Shm, Read, MIB) => vec![Rival(1.5)],
            (Shm, InjectWrite, _) => vec![Rival(2.0)],
            (Tcp | Shm, Put, _) | (Tcp, FetchAdd, _) => vec![Message(1.1)],
            (Shm, FetchAdd, _) => vec![Message(1.5)],
            (Tcp, Stream, _) if self.relay > 0 => vec![Bare(0.9)],
            (Tcp, Latency, 8) if self.idle > 0 => vec![Message(1.05)],
            (Tcp | Shm, Latency, 8) if self.wait == Wait::Spin && self.progress == Progress::Auto => vec![Message(1.1)],
            (Tcp | Shm, Start, _) => vec![Rival(0.5)],
            (Shm, Connect, _) if self.peers == 1 && self.endpoint == Endpoint::Rdm => vec![Value(30.0)],
            (Tcp | Udp, Latency, 8) if self.wait != Wait::Spin && self.progress == Progress::Manual => vec![Bare(1.1)],
            (_, Both, MIB) if self.threads == 8 => vec![Rival(1.0)],
            (_, All | Pairs, _) => vec![Rival(1.0)],
            // Milliseconds: ten for each process that shares one of two cores.
            (_, Gap, _) => vec![ValueOrRival(f64::from(u8::try_from(self.processes).unwrap_or(u8::MAX)) * 5.0)],
            (_, Allreduce | Barrier, _) => vec![Rival(1.1), Mpich(1.1)],
            (_, Cancel | Reverse | Ends | Inserts, _) => vec![Value(0.5)],
            (Shm, ImbPingPong, 8) => vec![Rival(0.85)],
            // Of the time: 0.97 of the speed.
            _ if self.is_program() => vec![Rival(1.031)],
            (Tcp, MemoryOfPeer, _) => vec![Value(4.0)],
            (Shm, MemoryOfEndpoint, _) => vec![Value(256.0)],
            _ => Vec::new(),
        }
    }
}
