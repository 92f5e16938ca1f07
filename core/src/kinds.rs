//! The interface's enumerations as open numbers: a caller may pass an unknown value, which must
//! appear in the reason for the mismatch and not be undefined behavior.

/// `unprinted` values have header names that fi_tostr(3) does not print.
macro_rules! open_enum {
    (
        $(#[$doc:meta])* $name:ident, $prefix:literal
        { $($(#[$vdoc:meta])* $variant:ident = $value:literal),* $(,)? }
        $(unprinted { $($other:ident = $number:literal),* $(,)? })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)*

            /// The name that fi_tostr(3) prints, if it knows the value.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(concat!($prefix, stringify!($variant))),)* _ => None }
            }

            /// The header name, also of values that fi_tostr(3) omits.
            pub const fn header_name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(concat!($prefix, stringify!($variant))),)*
                    $($($number => Some(concat!($prefix, stringify!($other))),)*)?
                    _ => None,
                }
            }

            /// The value with that C name, in any case.
            pub fn named(name: &str) -> Option<Self> {
                $(if concat!($prefix, stringify!($variant)).eq_ignore_ascii_case(name) { return Some(Self($value)); })*
                $($(if concat!($prefix, stringify!($other)).eq_ignore_ascii_case(name) { return Some(Self($number)); })*)?
                None
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.header_name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "Unknown ({})", self.0),
                }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name().unwrap_or("Unknown"))
            }
        }
    };
}

open_enum! {
    /// Kind of an endpoint.
    EndpointType, "FI_EP_" {
        /// Any kind.
        UNSPEC = 0,
        /// Connected, reliable messages.
        MSG = 1,
        /// Datagrams.
        DGRAM = 2,
        /// Reliable messages without connecting.
        RDM = 3,
    }
}
open_enum! {
    /// Address format.
    AddrFormat, "FI_" {
        /// Any format.
        FORMAT_UNSPEC = 0,
        /// A socket address of any family.
        SOCKADDR = 1,
        /// IPv4.
        SOCKADDR_IN = 2,
        /// IPv6.
        SOCKADDR_IN6 = 3,
        /// InfiniBand.
        SOCKADDR_IB = 4,
        /// Omni-Path PSM2.
        ADDR_PSMX2 = 10,
        /// Mellanox.
        ADDR_MLX = 8,
        /// A string.
        ADDR_STR = 9,
        /// InfiniBand unreliable datagrams.
        ADDR_IB_UD = 11,
        /// Elastic Fabric Adapter.
        ADDR_EFA = 12,
        /// PSM3.
        ADDR_PSMX3 = 13,
        /// Omni-Path Express.
        ADDR_OPX = 14,
        /// Slingshot.
        ADDR_CXI = 15,
        /// UCX.
        ADDR_UCX = 16,
        /// IPv4 or IPv6.
        SOCKADDR_IP = 17,
    }
    unprinted { ADDR_PSMX = 5, ADDR_GNI = 6, ADDR_BGQ = 7 }
}
open_enum! {
    /// Which calls may run concurrently.
    Threading, "FI_THREAD_" {
        /// The provider's cheapest.
        UNSPEC = 0,
        /// Any call from any thread.
        SAFE = 1,
        /// One thread at a time per object.
        FID = 2,
        /// One thread at a time per domain.
        DOMAIN = 3,
        /// One thread at a time for all objects that share a completion queue or counter.
        COMPLETION = 4,
        /// One thread at a time per endpoint.
        ENDPOINT = 5,
    }
}
open_enum! {
    /// Progress model: the library or the application makes progress.
    ProgressModel, "FI_PROGRESS_" {
        /// The provider's choice.
        UNSPEC = 0,
        /// The library, without calls from the application.
        AUTO = 1,
        /// The application, in its calls.
        MANUAL = 2,
        /// The application, which also serializes control calls.
        CONTROL_UNIFIED = 3,
    }
}
open_enum! {
    /// Whether queues are protected from overrun.
    ResourceMgmt, "FI_RM_" {
        /// The provider's choice.
        UNSPEC = 0,
        /// Not protected.
        DISABLED = 1,
        /// Protected.
        ENABLED = 2,
    }
}
open_enum! {
    /// How an address vector hands out handles.
    AvType, "FI_AV_" {
        /// The provider's choice.
        UNSPEC = 0,
        /// Opaque handles.
        MAP = 1,
        /// Indices.
        TABLE = 2,
    }
}
open_enum! {
    /// Wire protocol.
    Protocol, "FI_PROTO_" {
        /// Any protocol.
        UNSPEC = 0,
        /// InfiniBand reliable connections.
        RDMA_CM_IB_RC = 1,
        /// iWARP.
        IWARP = 2,
        /// InfiniBand unreliable datagrams.
        IB_UD = 3,
        /// UDP datagrams.
        UDP = 5,
        /// Messages over a TCP connection.
        SOCK_TCP = 6,
        /// iWARP with reliable datagrams.
        IWARP_RDM = 8,
        /// InfiniBand reliable datagrams.
        IB_RDM = 9,
        /// Reliable datagrams over messages.
        RXM = 11,
        /// Reliable datagrams over datagrams.
        RXD = 12,
        /// Mellanox.
        MLX = 13,
        /// Network Direct.
        NETWORKDIRECT = 14,
        /// PSM2.
        PSMX2 = 15,
        /// Shared memory.
        SHM = 16,
        /// InfiniBand extended reliable connections.
        RDMA_CM_IB_XRC = 19,
        /// Elastic Fabric Adapter.
        EFA = 20,
        /// PSM3.
        PSMX3 = 21,
        /// Reliable datagrams over TCP messages.
        RXM_TCP = 22,
        /// Omni-Path Express.
        OPX = 23,
        /// Slingshot.
        CXI = 24,
        /// Reliable datagrams over TCP.
        XNET = 25,
        /// UCX.
        UCX = 27,
        /// Shared memory, second design.
        SM2 = 28,
        /// Slingshot, receiver not ready.
        CXI_RNR = 29,
        /// Low-latency PCIe.
        LPP = 30,
        /// Linked providers.
        LNX = 31,
    }
    unprinted { PSMX = 4, MXM = 7, GNI = 10, MRAIL = 17, RSTREAM = 18, COLL = 26 }
}
open_enum! {
    /// What an entry of a completion queue holds.
    CqFormat, "FI_CQ_FORMAT_" {
        /// The provider's choice: the context alone.
        UNSPEC = 0,
        /// The context.
        CONTEXT = 1,
        /// And flags and length.
        MSG = 2,
        /// And buffer and data.
        DATA = 3,
        /// And tag.
        TAGGED = 4,
    }
}
open_enum! {
    /// Kind of a wait object.
    WaitObjectKind, "FI_WAIT_" {
        /// Nothing.
        NONE = 0,
        /// Blocking reads only.
        UNSPEC = 1,
        /// A wait set.
        SET = 2,
        /// A file descriptor.
        FD = 3,
        /// A mutex and a condition.
        MUTEX_COND = 4,
        /// Yielding the processor.
        YIELD = 5,
        /// A list of file descriptors.
        POLLFD = 6,
    }
}

/// How the network treats traffic (fi_endpoint(3), "tclass"): a label, or a DiffServ code point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TrafficClass(pub u32);

impl TrafficClass {
    /// The domain's default; for a domain, the system's.
    pub const UNSPEC: Self = Self(0);
    /// Marks the low byte as a code point.
    pub const DSCP: Self = Self(0x100);
    /// The labels by value, with their code points: default forwarding (RFC 2474), expedited
    /// forwarding (RFC 3246), voice admit (RFC 5865), high-throughput data (AF11, RFC 4594), lower
    /// effort (RFC 8622) and network control (CS6, RFC 4594).
    const LABELS: [(u32, &'static str, u8); 6] = [
        (0x200, "FI_TC_BEST_EFFORT", 0),
        (0x201, "FI_TC_LOW_LATENCY", 46),
        (0x202, "FI_TC_DEDICATED_ACCESS", 44),
        (0x203, "FI_TC_BULK_DATA", 10),
        (0x204, "FI_TC_SCAVENGER", 1),
        (0x205, "FI_TC_NETWORK_CTRL", 48),
    ];
    /// The default class of traffic.
    pub const BEST_EFFORT: Self = Self(0x200);

    /// The code point for packet headers; `None` for an unspecified or unknown class.
    pub fn dscp(self) -> Option<u8> {
        let label = Self::LABELS.iter().find(|(value, ..)| *value == self.0);
        let point = (self.0 & !0x3f == Self::DSCP.0).then_some(self.0 & 0x3f);
        label.map(|(.., dscp)| *dscp).or_else(|| u8::try_from(point?).ok())
    }

    /// Whether the class is unspecified or has a code point.
    pub fn is_known(self) -> bool {
        self == Self::UNSPEC || self.dscp().is_some()
    }

    /// This class, or `default` if it is unspecified.
    #[must_use]
    pub const fn or(self, default: Self) -> Self {
        if self.0 == Self::UNSPEC.0 { default } else { self }
    }
}

impl core::fmt::Debug for TrafficClass {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Self::LABELS.iter().find(|(value, ..)| *value == self.0) {
            Some((_, name, _)) => f.write_str(name),
            None if *self == Self::UNSPEC => f.write_str("FI_TC_UNSPEC"),
            None if self.0 & !0xff == Self::DSCP.0 => write!(f, "the code point {} (FI_TC_DSCP)", self.0 & 0xff),
            None => write!(f, "the unknown class {:#x}", self.0),
        }
    }
}

/// A version of the interface or of a provider: major in the upper half, minor in the lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u32);

impl Version {
    /// The interface version that this library implements.
    pub const API: Self = Self::new(2, 6);

    /// The version `major`.`minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self(((major as u32) << 16) | minor as u32)
    }

    /// The major version.
    pub const fn major(self) -> u32 {
        self.0 >> 16
    }

    /// The minor version.
    pub const fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

impl core::fmt::Debug for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}
