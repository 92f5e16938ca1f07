//! The functions of libibverbs and librdmacm, loaded on first use: nothing links to them.
#![allow(unsafe_code)]

use super::layout::{
    Ah, AhAttr, CmEvent, CmId, CompChannel, ConnParam, Context, Cq, DeviceAttr, EventChannel, Gid, Mr, Pd, PortAttr,
    Qp, QpAttr, QpInitAttr, Srq, SrqInitAttr, Storage,
};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;
use ofi_os::dylib::Library;
use std::path::Path;
use std::sync::OnceLock;

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident of $file:literal { $($function:ident($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $(pub(crate) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            fn load() -> Result<Self, String> {
                let library = Library::open(Path::new($file))?;
                Ok(Self {
                    $($function: {
                        let address = symbol(library, $file, concat!(stringify!($function), "\0"))?;
                        // SAFETY: the library's header declares the function with this type.
                        unsafe {
                            core::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// libibverbs.
    Verbs of "libibverbs.so.1" {
        ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
        ibv_alloc_pd(*mut Context) -> *mut Pd;
        ibv_dealloc_pd(*mut Pd) -> c_int;
        ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr(*mut Mr) -> c_int;
        ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
        ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
        ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        ibv_destroy_cq(*mut Cq) -> c_int;
        ibv_create_srq(*mut Pd, *mut SrqInitAttr) -> *mut Srq;
        ibv_destroy_srq(*mut Srq) -> c_int;
        ibv_modify_qp(*mut Qp, *mut QpAttr, c_int) -> c_int;
        ibv_query_qp(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
        ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events(*mut Cq, u32);
        ibv_query_port(*mut Context, u8, *mut PortAttr) -> c_int;
        ibv_create_ah(*mut Pd, *mut AhAttr) -> *mut Ah;
        ibv_destroy_ah(*mut Ah) -> c_int;
        ibv_attach_mcast(*mut Qp, *const Gid, u16) -> c_int;
        ibv_detach_mcast(*mut Qp, *const Gid, u16) -> c_int;
    }
}

functions! {
    /// librdmacm.
    Cm of "librdmacm.so.1" {
        rdma_create_event_channel() -> *mut EventChannel;
        rdma_destroy_event_channel(*mut EventChannel);
        rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id(*mut CmId) -> c_int;
        rdma_bind_addr(*mut CmId, *mut Storage) -> c_int;
        rdma_listen(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr(*mut CmId, *mut Storage, *mut Storage, c_int) -> c_int;
        rdma_resolve_route(*mut CmId, c_int) -> c_int;
        rdma_create_qp(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        rdma_destroy_qp(*mut CmId);
        rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
        rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
        rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
        rdma_disconnect(*mut CmId) -> c_int;
        rdma_join_multicast(*mut CmId, *mut Storage, *mut c_void) -> c_int;
        rdma_leave_multicast(*mut CmId, *mut Storage) -> c_int;
        rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
        rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event(*mut CmEvent) -> c_int;
    }
}

fn symbol(library: Library, file: &str, name: &str) -> Result<NonNull<c_void>, String> {
    let found = CStr::from_bytes_with_nul(name.as_bytes()).ok().and_then(|name| library.symbol(name));
    found.ok_or_else(|| format!("{file} has no {}", name.trim_end_matches('\0')))
}

/// Both libraries.
#[derive(Debug)]
pub(crate) struct Libraries {
    pub(crate) verbs: Verbs,
    pub(crate) cm: Cm,
}

/// The libraries.
///
/// # Errors
/// Why one cannot be loaded.
pub(crate) fn libraries() -> Result<&'static Libraries, &'static str> {
    static LIBRARIES: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let load = || Ok(Libraries { verbs: Verbs::load()?, cm: Cm::load()? });
    LIBRARIES.get_or_init(load).as_ref().map_err(String::as_str)
}

/// The process that has opened devices; the libraries keep them open. The kernel lets no other
/// process use them, not even one that was forked from it.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Whether this process may open devices.
///
/// # Errors
/// Why not, in words.
pub(crate) fn check_owner() -> Result<(), &'static str> {
    if OWNER.get().is_none_or(|owner| *owner == std::process::id()) {
        return Ok(());
    }
    Err(
        "the process was forked from one that uses RDMA devices, which the kernel reserves for that one: fork before the \
         first endpoint is opened, or run another program in the child",
    )
}

/// This process has opened devices.
pub(crate) fn own_devices() {
    OWNER.get_or_init(std::process::id);
}
