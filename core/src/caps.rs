//! Bit sets of the interface: capabilities, modes, operation flags, ordering, registration modes.
//! Several bits mean different things in different sets (fi_getinfo(3)); a type for each set keeps
//! them apart. Unknown bits are kept, so that the flags of newer and older callers survive a round
//! trip.

use bitflags::bitflags;

bitflags! {
    /// What an endpoint can do (fi_getinfo(3), "CAPABILITIES").
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Caps: u64 {
        /// Untagged messages.
        const MSG = 1 << 1;
        /// Remote memory access.
        const RMA = 1 << 2;
        /// Tagged messages.
        const TAGGED = 1 << 3;
        /// Atomic operations.
        const ATOMIC = 1 << 4;
        /// Multicast groups.
        const MULTICAST = 1 << 5;
        /// Collective operations.
        const COLLECTIVE = 1 << 6;
        /// Initiates remote reads.
        const READ = 1 << 8;
        /// Initiates remote writes.
        const WRITE = 1 << 9;
        /// Receives messages.
        const RECV = 1 << 10;
        /// Sends messages.
        const SEND = 1 << 11;
        /// Is the target of reads.
        const REMOTE_READ = 1 << 12;
        /// Is the target of writes.
        const REMOTE_WRITE = 1 << 13;
        /// Several messages in one posted buffer.
        const MULTI_RECV = 1 << 16;
        /// Completion data that travels with a message.
        const REMOTE_CQ_DATA = 1 << 17;
        /// Triggered operations.
        const TRIGGER = 1 << 20;
        /// Fenced operations.
        const FENCE = 1 << 21;
        /// Injected messages (callers before 2.0); an operation flag since.
        const INJECT = 1 << 25;
        /// Application-chosen ids for address vector entries.
        const AV_USER_ID = 1 << 41;
        /// Peer objects shared between providers.
        const PEER = 1 << 43;
        /// Accelerator-initiated operations.
        const XPU = 1 << 44;
        /// Directed receives for tagged messages only.
        const TAGGED_DIRECTED_RECV = 1 << 45;
        /// Multi-receive for tagged messages.
        const TAGGED_MULTI_RECV = 1 << 46;
        /// Device memory.
        const HMEM = 1 << 47;
        /// Every receive names its sender.
        const EXACT_DIRECTED_RECV = 1 << 48;
        /// Persistent memory as a target.
        const RMA_PMEM = 1 << 49;
        /// Unknown senders are reported with their address.
        const SOURCE_ERR = 1 << 50;
        /// Reaches peers on this host.
        const LOCAL_COMM = 1 << 51;
        /// Reaches peers on other hosts.
        const REMOTE_COMM = 1 << 52;
        /// Address vectors shared between processes.
        const SHARED_AV = 1 << 53;
        /// Counters and events at the target of remote access.
        const RMA_EVENT = 1 << 56;
        /// Completions name the sender.
        const SOURCE = 1 << 57;
        /// Receive contexts addressed by name.
        const NAMED_RX_CTX = 1 << 58;
        /// Receives may name their sender.
        const DIRECTED_RECV = 1 << 59;
        const _ = !0;
    }

    /// What a provider requires of the application, or what the application can meet
    /// (fi_getinfo(3), "MODE").
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Mode: u64 {
        /// The application reads messages where the library holds them (callers before 2.0).
        const BUFFERED_RECV = 1 << 51;
        /// 64 bytes of context memory for each operation.
        const CONTEXT2 = 1 << 52;
        /// Local buffers are registered (callers before 1.5).
        const LOCAL_MR = 1 << 55;
        /// Completion data at the target consumes a posted receive.
        const RX_CQ_DATA = 1 << 56;
        /// Vectors stay valid until the completion.
        const ASYNC_IOV = 1 << 57;
        /// Room for a header in front of each message.
        const MSG_PREFIX = 1 << 58;
        /// 32 bytes of context memory for each operation.
        const CONTEXT = 1 << 59;
        const _ = !0;
    }

    /// Flags of an operation and of the completion that reports it (fi_msg(3), fi_cq(3)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct OpFlags: u64 {
        /// An untagged message.
        const MSG = 1 << 1;
        /// Remote memory access.
        const RMA = 1 << 2;
        /// A tagged message.
        const TAGGED = 1 << 3;
        /// An atomic operation.
        const ATOMIC = 1 << 4;
        /// To a multicast group.
        const MULTICAST = 1 << 5;
        /// A collective operation.
        const COLLECTIVE = 1 << 6;
        /// A remote read.
        const READ = 1 << 8;
        /// A remote write.
        const WRITE = 1 << 9;
        /// A receive.
        const RECV = 1 << 10;
        /// A send; as a binding: everything that transmits.
        const SEND = 1 << 11;
        /// The target of a read.
        const REMOTE_READ = 1 << 12;
        /// The target of a write.
        const REMOTE_WRITE = 1 << 13;
        /// The buffer takes several messages, or is released.
        const MULTI_RECV = 1 << 16;
        /// Completion data travels with the operation.
        const REMOTE_CQ_DATA = 1 << 17;
        /// More operations follow at once.
        const MORE = 1 << 18;
        /// Look for a message without receiving it.
        const PEEK = 1 << 19;
        /// Triggered by a counter.
        const TRIGGER = 1 << 20;
        /// After all earlier operations to the peer.
        const FENCE = 1 << 21;
        /// Report success, on an endpoint that reports selectively.
        const COMPLETION = 1 << 24;
        /// The buffer is free again when the call returns.
        const INJECT = 1 << 25;
        /// Complete when the buffer is free again.
        const INJECT_COMPLETE = 1 << 26;
        /// Complete when the transport has taken over.
        const TRANSMIT_COMPLETE = 1 << 27;
        /// Complete when the peer has processed the operation.
        const DELIVERY_COMPLETE = 1 << 28;
        /// The vector of attributes names a processor.
        const AFFINITY = 1 << 29;
        /// Complete when the result is durable.
        const COMMIT_COMPLETE = 1 << 30;
        /// Complete when the message has matched a receive.
        const MATCH_COMPLETE = 1 << 31;
        /// The address is an authorization key.
        const AUTH_KEY = 1 << 57;
        /// Drop the message that was peeked at or claimed.
        const DISCARD = 1 << 58;
        /// Reserve, or receive, the message that was peeked at.
        const CLAIM = 1 << 59;
        const _ = !0;
    }

    /// Flags of binding an object to an endpoint (fi_endpoint(3)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct BindFlags: u64 {
        /// Remote reads.
        const READ = 1 << 8;
        /// Remote writes.
        const WRITE = 1 << 9;
        /// Receives.
        const RECV = 1 << 10;
        /// Everything that transmits; for a counter: sends.
        const TRANSMIT = 1 << 11;
        /// Target of remote reads.
        const REMOTE_READ = 1 << 12;
        /// Target of remote writes.
        const REMOTE_WRITE = 1 << 13;
        /// Only operations with FI_COMPLETION report success.
        const SELECTIVE_COMPLETION = 1 << 59;
        const _ = !0;
    }

    /// What operations may do with registered memory (fi_mr(3), "access"): the bits of [`OpFlags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MrAccess: u64 {
        /// Collective operations use it.
        const COLLECTIVE = 1 << 6;
        /// Reads and fetching atomics put their results here.
        const READ = 1 << 8;
        /// Writes and atomics take their data from here.
        const WRITE = 1 << 9;
        /// Messages are received here.
        const RECV = 1 << 10;
        /// Messages are sent from here.
        const SEND = 1 << 11;
        /// Peers read it.
        const REMOTE_READ = 1 << 12;
        /// Peers change it.
        const REMOTE_WRITE = 1 << 13;
        const _ = !0;
    }

    /// What memory registration requires (fi_mr(3)).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MrMode: u32 {
        /// The basic mode of interface versions before 1.5; stands alone.
        const BASIC = 1;
        /// The scalable mode of interface versions before 1.5; stands alone.
        const SCALABLE = 1 << 1;
        /// Local buffers have descriptors.
        const LOCAL = 1 << 2;
        /// Raw keys.
        const RAW = 1 << 3;
        /// Remote addresses are virtual addresses.
        const VIRT_ADDR = 1 << 4;
        /// Memory has physical pages when it is registered.
        const ALLOCATED = 1 << 5;
        /// The provider chooses keys.
        const PROV_KEY = 1 << 6;
        /// The application reports page changes.
        const MMU_NOTIFY = 1 << 7;
        /// Regions with RMA events are registered as such.
        const RMA_EVENT = 1 << 8;
        /// Regions belong to an endpoint.
        const ENDPOINT = 1 << 9;
        /// Device memory is registered as such.
        const HMEM = 1 << 10;
        /// Buffers of collectives are registered.
        const COLLECTIVE = 1 << 11;
        /// Descriptors for accelerators.
        const XPU_DESC = 1 << 12;
        const _ = !0;
    }

    /// Which pairs of operations keep their order (fi_endpoint(3), "msg_order").
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MsgOrder: u64 {
        /// Read after read.
        const RAR = 1;
        /// Read after write.
        const RAW = 1 << 1;
        /// Read after send.
        const RAS = 1 << 2;
        /// Write after read.
        const WAR = 1 << 3;
        /// Write after write.
        const WAW = 1 << 4;
        /// Write after send.
        const WAS = 1 << 5;
        /// Send after read.
        const SAR = 1 << 6;
        /// Send after write.
        const SAW = 1 << 7;
        /// Send after send.
        const SAS = 1 << 8;
        /// Read after read, RMA only.
        const RMA_RAR = 1 << 32;
        /// Read after write, RMA only.
        const RMA_RAW = 1 << 33;
        /// Write after read, RMA only.
        const RMA_WAR = 1 << 34;
        /// Write after write, RMA only.
        const RMA_WAW = 1 << 35;
        /// Read after read, atomics only.
        const ATOMIC_RAR = 1 << 36;
        /// Read after write, atomics only.
        const ATOMIC_RAW = 1 << 37;
        /// Write after read, atomics only.
        const ATOMIC_WAR = 1 << 38;
        /// Write after write, atomics only.
        const ATOMIC_WAW = 1 << 39;
        /// The bytes of one message in order; an order of completions (callers before 2.0).
        const DATA = 1 << 16;
        const _ = !0;
    }
}

impl Caps {
    /// Capabilities that the application must ask for.
    pub const PRIMARY: Self = Self::from_bits_retain(0x0c00_8a00_0000_3f7e);
    /// Capabilities that a provider may grant without a request.
    pub const SECONDARY: Self = Self::from_bits_retain(0x033e_0000_0031_0000);
    /// Capabilities that are neither primary nor secondary: granted only on request, or if the
    /// hints name no capability. FI_REMOTE_CQ_DATA is not a capability today, but old programs
    /// request it.
    pub const KNOWN_BESIDES: Self = Self::from_bits_retain(
        Self::XPU.bits()
            | Self::TAGGED_DIRECTED_RECV.bits()
            | Self::TAGGED_MULTI_RECV.bits()
            | Self::EXACT_DIRECTED_RECV.bits()
            | Self::REMOTE_CQ_DATA.bits(),
    );
    /// Capabilities in 2014, implicit since: callers before 2.0 may still request them.
    pub const ONCE: Self = Self::from_bits_retain(Self::INJECT.bits() | Self::REMOTE_CQ_DATA.bits());
    /// Data transfer capabilities: FI_MULTICAST needs another of them beside it.
    pub const TRANSFERS: Self = Self::from_bits_retain(0x3f7e);
    /// Granted only by name: FI_SOURCE_ERR turns a success into an error, FI_RMA_PMEM would say of
    /// a medium that it has persistent memory, which only the program knows, FI_TRIGGER makes more
    /// objects take part in progress, and other libraries too grant FI_COLLECTIVE only by name.
    pub const ONLY_IF_NAMED: Self = Self::from_bits_retain(
        Self::SOURCE_ERR.bits() | Self::RMA_PMEM.bits() | Self::TRIGGER.bits() | Self::COLLECTIVE.bits(),
    );
    /// Receive capabilities that hints for transmitting may name without effect.
    pub const IGNORED_FOR_TRANSMIT: Self = Self::from_bits_retain(0x0b04_0000_0001_3400);
    /// Transmit capabilities that hints for receiving may name without effect.
    pub const IGNORED_FOR_RECEIVE: Self = Self::from_bits_retain(0x0400_0000_0020_0b20);

    /// Capabilities of a transmit context.
    pub const TRANSMIT: Self = Self::from_bits_retain(0x0400_8000_0000_0b7e | 0x0002_0000_0030_0000);
    /// Capabilities of a receive context.
    pub const RECEIVE: Self = Self::from_bits_retain(0x0800_8000_0000_345e | 0x0306_0000_0011_0000);
}

impl MsgOrder {
    /// Every pair of operations, as all are carried out in the order in which they are posted.
    pub const ALL: Self = Self::from_bits_retain(0xff_0000_01ff);
}

impl MrAccess {
    /// Access by peers: a region without it has no key.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE);
}

impl OpFlags {
    /// Bits that any interface version defines for an operation or a completion.
    pub const KNOWN: Self = Self::from_bits_retain(0x0e00_1000_ff3f_3f7e);
}

/// Bits and their names in C.
type Names = &'static [(u64, &'static str)];

/// `$flag`: names that fi_tostr(3) prints, in its order; `$other`: names that it omits;
/// `$strangers`: names of other sets.
macro_rules! name_table {
    ($type:ty, $table:ident, $prefix:literal, $strangers:expr, $($flag:ident)*; unprinted $($other:ident)*) => {
        struct $table;
        impl $table {
            const PRINTED: Names = &[$((<$type>::$flag.bits() as u64, concat!($prefix, stringify!($flag)))),*];
            const UNPRINTED: Names = &[$((<$type>::$other.bits() as u64, concat!($prefix, stringify!($other)))),*];
        }
        impl $type {
            /// The C names of the set flags, in the order of fi_tostr(3).
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                let bits = u64::from(self.bits());
                $table::PRINTED.iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, name)| *name)
            }

            /// The set flags for an error text, joined by `|`, with the names that fi_tostr(3)
            /// omits and those of other sets. Bits without a name in any header become one number.
            pub fn text(self) -> String {
                let strangers: &[Names] = $strangers;
                text([$table::PRINTED, $table::UNPRINTED].into_iter().chain(strangers.iter().copied()), u64::from(self.bits()))
            }

            /// The flag with that C name, with or without its prefix, in any case.
            pub fn named(name: &str) -> Option<Self> {
                let fits = |full: &str| {
                    full.eq_ignore_ascii_case(name) || full.strip_prefix($prefix).is_some_and(|n| n.eq_ignore_ascii_case(name))
                };
                let (bits, _) = $table::PRINTED.iter().chain($table::UNPRINTED).find(|(_, full)| fits(full))?;
                Some(Self::from_bits_retain((*bits).try_into().ok()?))
            }
        }
    };
}

// Capabilities and flags share one bit space: an error text names bits of the other set.
name_table!(Caps, CapNames, "FI_", &[OpFlagNames::PRINTED, OpFlagNames::UNPRINTED, CALL_FLAGS],
    MSG RMA TAGGED ATOMIC MULTICAST COLLECTIVE READ WRITE RECV SEND REMOTE_READ REMOTE_WRITE MULTI_RECV REMOTE_CQ_DATA
    TRIGGER FENCE RMA_PMEM SOURCE_ERR LOCAL_COMM REMOTE_COMM SHARED_AV RMA_EVENT SOURCE NAMED_RX_CTX DIRECTED_RECV
    AV_USER_ID PEER HMEM XPU; unprinted INJECT TAGGED_DIRECTED_RECV TAGGED_MULTI_RECV
    EXACT_DIRECTED_RECV);
name_table!(OpFlags, OpFlagNames, "FI_", &[CapNames::PRINTED, CapNames::UNPRINTED, CALL_FLAGS],
    MULTICAST MULTI_RECV REMOTE_CQ_DATA MORE PEEK TRIGGER FENCE COMPLETION INJECT INJECT_COMPLETE TRANSMIT_COMPLETE
    DELIVERY_COMPLETE MATCH_COMPLETE AFFINITY CLAIM DISCARD; unprinted MSG RMA TAGGED ATOMIC COLLECTIVE READ WRITE RECV
    SEND REMOTE_READ REMOTE_WRITE COMMIT_COMPLETE AUTH_KEY);
name_table!(Mode, ModeNames, "FI_", &[], CONTEXT MSG_PREFIX ASYNC_IOV RX_CQ_DATA LOCAL_MR CONTEXT2; unprinted BUFFERED_RECV);
name_table!(MrMode, MrModeNames, "FI_MR_", &[], BASIC SCALABLE LOCAL RAW VIRT_ADDR ALLOCATED PROV_KEY MMU_NOTIFY
    RMA_EVENT ENDPOINT HMEM COLLECTIVE XPU_DESC; unprinted);
name_table!(MsgOrder, OrderNames, "FI_ORDER_", &[], RAR RAW RAS WAR WAW WAS SAR SAW SAS RMA_RAR RMA_RAW RMA_WAR RMA_WAW
    ATOMIC_RAR ATOMIC_RAW ATOMIC_WAR ATOMIC_WAW; unprinted DATA);

/// Call flags, which share their bit space with capabilities and operation flags.
const CALL_FLAGS: Names = &[
    (1 << 35, "FI_RESCAN"),
    (1 << 36, "FI_PEER_TRANSFER"),
    (1 << 42, "FI_FIREWALL_ADDR"),
    (1 << 54, "FI_PROV_ATTR_ONLY"),
    (1 << 55, "FI_NUMERICHOST"),
];

/// Names each bit by its first table entry; bits without an entry become one number.
fn text(tables: impl Iterator<Item = Names>, bits: u64) -> String {
    let mut rest = bits;
    let mut out = Vec::new();
    for (bit, name) in tables.flatten() {
        if rest & bit != 0 {
            rest &= !bit;
            out.push((*name).to_owned());
        }
    }
    if rest != 0 {
        out.push(format!("{rest:#x}"));
    }
    if out.is_empty() { "none".to_owned() } else { out.join("|") }
}

/// The names of a completion's flags, in the order of fi_tostr(3).
pub fn completion_flag_names(flags: OpFlags) -> impl Iterator<Item = &'static str> {
    const NAMES: &[(OpFlags, &str)] = &[
        (OpFlags::SEND, "FI_SEND"),
        (OpFlags::RECV, "FI_RECV"),
        (OpFlags::RMA, "FI_RMA"),
        (OpFlags::ATOMIC, "FI_ATOMIC"),
        (OpFlags::MSG, "FI_MSG"),
        (OpFlags::TAGGED, "FI_TAGGED"),
        (OpFlags::READ, "FI_READ"),
        (OpFlags::WRITE, "FI_WRITE"),
        (OpFlags::REMOTE_READ, "FI_REMOTE_READ"),
        (OpFlags::REMOTE_WRITE, "FI_REMOTE_WRITE"),
        (OpFlags::REMOTE_CQ_DATA, "FI_REMOTE_CQ_DATA"),
        (OpFlags::MULTI_RECV, "FI_MULTI_RECV"),
    ];
    NAMES.iter().filter(move |(flag, _)| flags.contains(*flag)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_documented_order() {
        let caps = Caps::SEND | Caps::MSG | Caps::DIRECTED_RECV;
        assert_eq!(caps.names().collect::<Vec<_>>(), ["FI_MSG", "FI_SEND", "FI_DIRECTED_RECV"]);
    }

    #[test]
    fn unknown_bits_survive() {
        assert_eq!(Caps::from_bits_retain(1 << 63).bits(), 1 << 63);
    }

    #[test]
    fn primary_and_secondary_do_not_overlap() {
        assert!((Caps::PRIMARY & Caps::SECONDARY).is_empty());
        assert!(Caps::PRIMARY.contains(Caps::DIRECTED_RECV | Caps::TAGGED | Caps::AV_USER_ID));
        assert!(Caps::SECONDARY.contains(Caps::SOURCE | Caps::LOCAL_COMM | Caps::MULTI_RECV));
    }
}
