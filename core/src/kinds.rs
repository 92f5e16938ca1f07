//! The interface's enumerations as open numbers: a caller may pass a value that we do not know, and it must
//! come back in the reason why nothing matched, not be undefined behaviour.

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident, $prefix:literal { $($(#[$vdoc:meta])* $variant:ident = $value:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)*

            /// The name in C, if the value is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($value => Some(concat!($prefix, stringify!($variant))),)* _ => None }
            }

            /// The value with that name in C, in any case.
            pub fn named(name: &str) -> Option<Self> {
                $(if concat!($prefix, stringify!($variant)).eq_ignore_ascii_case(name) { return Some(Self($value)); })*
                None
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() { Some(name) => f.write_str(name), None => write!(f, "Unknown ({})", self.0) }
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
    /// How addresses are written.
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
}
open_enum! {
    /// Which calls may run at once.
    Threading, "FI_THREAD_" {
        /// The provider's cheapest.
        UNSPEC = 0,
        /// Any call from any thread.
        SAFE = 1,
        /// One thread an object at a time.
        FID = 2,
        /// One thread a domain at a time.
        DOMAIN = 3,
        /// One thread for all that shares a completion structure.
        COMPLETION = 4,
        /// One thread an endpoint at a time.
        ENDPOINT = 5,
    }
}
open_enum! {
    /// Who moves operations on.
    ProgressModel, "FI_PROGRESS_" {
        /// The provider's choice.
        UNSPEC = 0,
        /// The library, without calls.
        AUTO = 1,
        /// The application's calls.
        MANUAL = 2,
        /// The application's calls, control calls serialised too.
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
    /// What travels on the wire.
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
    /// What a thread can wait on.
    WaitObject, "FI_WAIT_" {
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

    /// The part before the point.
    pub const fn major(self) -> u32 {
        self.0 >> 16
    }

    /// The part after the point.
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
