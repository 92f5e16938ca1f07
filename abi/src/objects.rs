//! Objects and their function tables, in slot order. No slot is null: the inline functions of old
//! headers call without a check.

use crate::data::{
    fi_addr_t, fi_atomic_attr, fi_av_attr, fi_av_set_attr, fi_cntr_attr, fi_collective_attr, fi_cq_attr,
    fi_cq_err_entry, fi_eq_attr, fi_eq_err_entry, fi_ioc, fi_mr_attr, fi_msg, fi_msg_atomic, fi_msg_rma, fi_msg_tagged,
    fi_poll_attr, fi_profile_desc, fi_wait_attr, iovec,
};
use crate::fabric::{fi_info, fi_provider, fi_rx_attr, fi_tx_attr, fid};
use core::ffi::{c_char, c_int, c_void};

/// A slot that only returns an error. Its arguments do not matter: with a caller-cleanup calling
/// convention it can be called with any. The result register is as wide as `ssize_t`.
pub type Absent = unsafe extern "C" fn() -> isize;

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident { $($slot:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            pub size: usize,
            $(pub $slot: $kind,)*
        }

        impl $name {
            /// The names of the slots with their types, in order.
            pub const SLOTS: &'static [(&'static str, &'static str)] = &[$((stringify!($slot), stringify!($kind)),)*];
        }
    )*};
}

type ReceiveCall = unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
type SendCall = unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> isize;
type VectoredCall =
    unsafe extern "C" fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> isize;
type ReadCall =
    unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
type WriteCall =
    unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize;
type VectoredRmaCall =
    unsafe extern "C" fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> isize;
type ExchangeCall = unsafe extern "C" fn(
    *mut fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    u32,
    u64,
    *mut c_void,
) -> isize;
type CombiningCall = unsafe extern "C" fn(
    *mut fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    u32,
    u32,
    u64,
    *mut c_void,
) -> isize;
type RootedCall = unsafe extern "C" fn(
    *mut fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    fi_addr_t,
    u32,
    u64,
    *mut c_void,
) -> isize;
type AtomicQuery = unsafe extern "C" fn(*mut fid_ep, u32, u32, *mut usize) -> c_int;

tables! {
    /// Calls of a fabric (`struct fi_ops_fabric`, fi_fabric(3)).
    fi_ops_fabric {
        domain: unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int,
        passive_ep: unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int,
        eq_open: unsafe extern "C" fn(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int,
        wait_open: unsafe extern "C" fn(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int,
        trywait: unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
        domain2: unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int,
    }
    /// Calls of a domain (`struct fi_ops_domain`, fi_domain(3)).
    fi_ops_domain {
        av_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int,
        cq_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int,
        endpoint: unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
        scalable_ep: unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
        cntr_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int,
        poll_open: unsafe extern "C" fn(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll) -> c_int,
        stx_ctx: unsafe extern "C" fn(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int,
        srx_ctx: unsafe extern "C" fn(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int,
        query_atomic: unsafe extern "C" fn(*mut fid_domain, u32, u32, *mut fi_atomic_attr, u64) -> c_int,
        query_collective: unsafe extern "C" fn(*mut fid_domain, u32, *mut fi_collective_attr, u64) -> c_int,
        endpoint2: unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int,
        xpu_ctx: Absent,
    }
    /// Registration of memory (`struct fi_ops_mr`, fi_mr(3)).
    fi_ops_mr {
        reg: unsafe extern "C" fn(
            *mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int,
        regv: unsafe extern "C" fn(
            *mut fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int,
        regattr: unsafe extern "C" fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
    }
    /// Calls of an address vector (`struct fi_ops_av`, fi_av(3)).
    fi_ops_av {
        insert: unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
        insertsvc: unsafe extern "C" fn(
            *mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void) -> c_int,
        insertsym: unsafe extern "C" fn(
            *mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
        remove: unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int,
        lookup: unsafe extern "C" fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int,
        straddr: unsafe extern "C" fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char,
        av_set: unsafe extern "C" fn(
            *mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void) -> c_int,
        insert_auth_key: Absent,
        lookup_auth_key: Absent,
        set_user_id: unsafe extern "C" fn(*mut fid_av, fi_addr_t, fi_addr_t, u64) -> c_int,
        lookup2: Absent,
    }
    /// Calls of a set of addresses (`struct fi_ops_av_set`, fi_av_set(3)).
    fi_ops_av_set {
        set_union: unsafe extern "C" fn(*mut fid_av_set, *const fid_av_set) -> c_int,
        intersect: unsafe extern "C" fn(*mut fid_av_set, *const fid_av_set) -> c_int,
        diff: unsafe extern "C" fn(*mut fid_av_set, *const fid_av_set) -> c_int,
        insert: unsafe extern "C" fn(*mut fid_av_set, fi_addr_t) -> c_int,
        remove: unsafe extern "C" fn(*mut fid_av_set, fi_addr_t) -> c_int,
        addr: unsafe extern "C" fn(*mut fid_av_set, *mut fi_addr_t) -> c_int,
    }
    /// Calls of an endpoint (`struct fi_ops_ep`, fi_endpoint(3)).
    fi_ops_ep {
        cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> isize,
        getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
        tx_ctx: unsafe extern "C" fn(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int,
        rx_ctx: unsafe extern "C" fn(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int,
        rx_size_left: unsafe extern "C" fn(*mut fid_ep) -> isize,
        tx_size_left: unsafe extern "C" fn(*mut fid_ep) -> isize,
        export_xpu: Absent,
    }
    /// Connection management (`struct fi_ops_cm`, fi_cm(3)).
    fi_ops_cm {
        setname: unsafe extern "C" fn(*mut fid, *mut c_void, usize) -> c_int,
        getname: unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int,
        getpeer: unsafe extern "C" fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int,
        connect: unsafe extern "C" fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int,
        listen: unsafe extern "C" fn(*mut fid_pep) -> c_int,
        accept: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize) -> c_int,
        reject: unsafe extern "C" fn(*mut fid_pep, *mut fid, *const c_void, usize) -> c_int,
        shutdown: unsafe extern "C" fn(*mut fid_ep, u64) -> c_int,
        join: unsafe extern "C" fn(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int,
    }
    /// Untagged messages (`struct fi_ops_msg`, fi_msg(3)).
    fi_ops_msg {
        recv: ReceiveCall,
        recvv: VectoredCall,
        recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
        send: SendCall,
        sendv: VectoredCall,
        sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> isize,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> isize,
        senddata: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, *mut c_void) -> isize,
        injectdata: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> isize,
    }
    /// Tagged messages (`struct fi_ops_tagged`, fi_tagged(3)).
    fi_ops_tagged {
        recv: unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> isize,
        recvv: unsafe extern "C" fn(
            *mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> isize,
        recvmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize,
        send: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void) -> isize,
        sendv: unsafe extern "C" fn(
            *mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, *mut c_void) -> isize,
        sendmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> isize,
        senddata: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, *mut c_void) -> isize,
        injectdata: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> isize,
    }
    /// Remote memory access (`struct fi_ops_rma`, fi_rma(3)).
    fi_ops_rma {
        read: ReadCall,
        readv: VectoredRmaCall,
        readmsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
        write: WriteCall,
        writev: VectoredRmaCall,
        writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> isize,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> isize,
        writedata: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void) -> isize,
        injectdata: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> isize,
    }
    /// Atomic operations (`struct fi_ops_atomic`, fi_atomic(3)).
    fi_ops_atomic {
        write: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, u32, u32, *mut c_void) -> isize,
        writev: unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64, u64, u32, u32, *mut c_void) -> isize,
        writemsg: unsafe extern "C" fn(*mut fid_ep, *const fi_msg_atomic, u64) -> isize,
        inject: unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64, u32, u32) -> isize,
        readwrite: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, u32, u32,
            *mut c_void) -> isize,
        readwritev: unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void, usize, fi_addr_t, u64,
            u64, u32, u32, *mut c_void) -> isize,
        readwritemsg: unsafe extern "C" fn(
            *mut fid_ep, *const fi_msg_atomic, *mut fi_ioc, *mut *mut c_void, usize, u64) -> isize,
        compwrite: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void,
            fi_addr_t, u64, u64, u32, u32, *mut c_void) -> isize,
        compwritev: unsafe extern "C" fn(
            *mut fid_ep, *const fi_ioc, *mut *mut c_void, usize, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc,
            *mut *mut c_void, usize, fi_addr_t, u64, u64, u32, u32, *mut c_void) -> isize,
        compwritemsg: unsafe extern "C" fn(
            *mut fid_ep, *const fi_msg_atomic, *const fi_ioc, *mut *mut c_void, usize, *mut fi_ioc, *mut *mut c_void,
            usize, u64) -> isize,
        writevalid: AtomicQuery,
        readwritevalid: AtomicQuery,
        compwritevalid: AtomicQuery,
    }
    /// Collective operations (`struct fi_ops_collective`, fi_collective(3)).
    fi_ops_collective {
        barrier: unsafe extern "C" fn(*mut fid_ep, fi_addr_t, *mut c_void) -> isize,
        broadcast: unsafe extern "C" fn(
            *mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, fi_addr_t, u32, u64, *mut c_void) -> isize,
        alltoall: ExchangeCall,
        allreduce: CombiningCall,
        allgather: ExchangeCall,
        reduce_scatter: CombiningCall,
        reduce: unsafe extern "C" fn(
            *mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, u32, u32,
            u64, *mut c_void) -> isize,
        scatter: RootedCall,
        gather: RootedCall,
        msg: Absent,
        barrier2: unsafe extern "C" fn(*mut fid_ep, fi_addr_t, u64, *mut c_void) -> isize,
    }
    /// Calls of an event queue (`struct fi_ops_eq`, fi_eq(3)).
    fi_ops_eq {
        read: unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> isize,
        readerr: unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> isize,
        write: unsafe extern "C" fn(*mut fid_eq, u32, *const c_void, usize, u64) -> isize,
        sread: unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
        strerror: unsafe extern "C" fn(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    }
    /// Calls of a completion queue (`struct fi_ops_cq`, fi_cq(3)).
    fi_ops_cq {
        read: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> isize,
        readfrom: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t) -> isize,
        readerr: unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize,
        sread: unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom: unsafe extern "C" fn(
            *mut fid_cq, *mut c_void, usize, *mut fi_addr_t, *const c_void, c_int) -> isize,
        signal: unsafe extern "C" fn(*mut fid_cq) -> c_int,
        strerror: unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
        export_xpu: Absent,
    }
    /// Calls of a counter (`struct fi_ops_cntr`, fi_cntr(3)).
    fi_ops_cntr {
        read: unsafe extern "C" fn(*mut fid_cntr) -> u64,
        readerr: unsafe extern "C" fn(*mut fid_cntr) -> u64,
        add: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
        set: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
        wait: unsafe extern "C" fn(*mut fid_cntr, u64, c_int) -> c_int,
        adderr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
        seterr: unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int,
        export_xpu: Absent,
    }
    /// Calls of a log (`struct fi_ops_log`, fi_provider(3)).
    fi_ops_log {
        enabled: unsafe extern "C" fn(*const fi_provider, u32, u32, u64) -> c_int,
        ready: unsafe extern "C" fn(*const fi_provider, u32, u32, u64, *mut u64) -> c_int,
        log: unsafe extern "C" fn(*const fi_provider, u32, u32, *const c_char, c_int, *const c_char),
    }
    /// Calls of a wait set (`struct fi_ops_wait`, fi_poll(3)).
    fi_ops_wait { wait: unsafe extern "C" fn(*mut fid_wait, c_int) -> c_int, }
    /// Calls of a profile (`struct fi_profile_ops`, fi_profile(3)).
    fi_profile_ops {
        reset: unsafe extern "C" fn(*mut fid_profile, u64) -> c_int,
        query_vars: unsafe extern "C" fn(*mut fid_profile, *mut fi_profile_desc, *mut usize) -> isize,
        query_events: unsafe extern "C" fn(*mut fid_profile, *mut fi_profile_desc, *mut usize) -> isize,
        read_var: unsafe extern "C" fn(*mut fid_profile, u32, *mut c_void, *mut usize) -> isize,
        reg_callback: unsafe extern "C" fn(*mut fid_profile, u32, *const c_void, *mut c_void) -> c_int,
        start_reads: unsafe extern "C" fn(*mut fid_profile, u64),
        end_reads: unsafe extern "C" fn(*mut fid_profile, u64),
    }
    /// Calls of a poll set (`struct fi_ops_poll`, fi_poll(3)).
    fi_ops_poll {
        poll: unsafe extern "C" fn(*mut fid_poll, *mut *mut c_void, c_int) -> c_int,
        poll_add: unsafe extern "C" fn(*mut fid_poll, *mut fid, u64) -> c_int,
        poll_del: unsafe extern "C" fn(*mut fid_poll, *mut fid, u64) -> c_int,
    }
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            pub fid: fid,
            $(pub $field: $kind,)*
        }
    )*};
}

objects! {
    /// A fabric (`struct fid_fabric`).
    fid_fabric { ops: *const fi_ops_fabric, api_version: u32, }
    /// A domain (`struct fid_domain`).
    fid_domain { ops: *const fi_ops_domain, mr: *const fi_ops_mr, }
    /// An endpoint (`struct fid_ep`).
    fid_ep {
        ops: *const fi_ops_ep, cm: *const fi_ops_cm, msg: *const fi_ops_msg, rma: *const fi_ops_rma,
        tagged: *const fi_ops_tagged, atomic: *const fi_ops_atomic, collective: *const fi_ops_collective,
    }
    /// A shared transmit context (`struct fid_stx`).
    fid_stx { ops: *const fi_ops_ep, }
    /// A memory region (`struct fid_mr`).
    fid_mr { mem_desc: *mut c_void, key: u64, }
    /// A passive endpoint (`struct fid_pep`).
    fid_pep { ops: *const fi_ops_ep, cm: *const fi_ops_cm, }
    /// An address vector (`struct fid_av`).
    fid_av { ops: *const fi_ops_av, }
    /// A set of addresses (`struct fid_av_set`).
    fid_av_set { ops: *const fi_ops_av_set, }
    /// An event queue (`struct fid_eq`).
    fid_eq { ops: *const fi_ops_eq, }
    /// A completion queue (`struct fid_cq`).
    fid_cq { ops: *const fi_ops_cq, }
    /// A log (`struct fid_logging`).
    fid_logging { ops: *const fi_ops_log, }
    /// A joined multicast group (`struct fid_mc`).
    fid_mc { fi_addr: fi_addr_t, }
    /// A counter (`struct fid_cntr`).
    fid_cntr { ops: *const fi_ops_cntr, }
    /// A wait set (`struct fid_wait`).
    fid_wait { ops: *const fi_ops_wait, }
    /// A profile (`struct fid_profile`, fi_profile(3)).
    fid_profile { ops: *const fi_profile_ops, }
    /// A poll set (`struct fid_poll`).
    fid_poll { ops: *const fi_ops_poll, }
}

/// The group that an endpoint joins (`struct fi_collective_addr`, fi_collective(3)).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_collective_addr {
    pub set: *const fid_av_set,
    pub coll_addr: fi_addr_t,
}
