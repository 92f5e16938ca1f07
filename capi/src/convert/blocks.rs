//! Frees infos: each node and each of its members is a block of its own.

use core::ffi::c_void;
use ofi_abi::{fi_info, fid_nic};

/// Frees a list.
///
/// # Safety
/// `info` is null or a list whose nodes and members are null or allocated with malloc
/// (fi_freeinfo(3)).
pub(crate) unsafe fn free_list(mut info: *mut fi_info) {
    // SAFETY: null or a valid node by this function's contract.
    while let Some(node) = unsafe { info.as_ref() } {
        let next = node.next;
        // SAFETY: this function's contract.
        let blocks = unsafe { Blocks::of(node, node) };
        // SAFETY: as above.
        unsafe { blocks.free() };
        // SAFETY: the node is a block of its own, and its members are freed.
        unsafe { release(info) };
        info = next;
    }
}

/// What belongs to a node.
pub(super) struct Blocks {
    blocks: [*mut c_void; 12],
    nic: *mut fid_nic,
}

impl Blocks {
    /// The blocks of `node`: its attributes are its own, and what those own is read from those of
    /// `view`, which are as long as current ones.
    ///
    /// # Safety
    /// `view` is a valid node with valid attributes.
    pub(super) unsafe fn of(node: &fi_info, view: &fi_info) -> Self {
        // SAFETY: null or valid.
        let ep_key = unsafe { view.ep_attr.as_ref() }.map_or(core::ptr::null_mut(), |ep| ep.auth_key);
        // SAFETY: null or valid.
        let domain = unsafe { view.domain_attr.as_ref() };
        let (domain_key, domain_name) =
            domain.map_or((core::ptr::null_mut(), core::ptr::null_mut()), |domain| (domain.auth_key, domain.name));
        // SAFETY: null or valid.
        let fabric = unsafe { view.fabric_attr.as_ref() };
        let (fabric_name, prov_name) =
            fabric.map_or((core::ptr::null_mut(), core::ptr::null_mut()), |fabric| (fabric.name, fabric.prov_name));
        let blocks = [
            view.src_addr,
            view.dest_addr,
            ep_key.cast(),
            domain_key.cast(),
            domain_name.cast(),
            fabric_name.cast(),
            prov_name.cast(),
            node.tx_attr.cast(),
            node.rx_attr.cast(),
            node.ep_attr.cast(),
            node.domain_attr.cast(),
            node.fabric_attr.cast(),
        ];
        Self { blocks, nic: view.nic }
    }

    /// Frees them.
    ///
    /// # Safety
    /// Each is null or allocated with malloc, and no longer used; the nic has a table.
    pub(super) unsafe fn free(self) {
        for block in self.blocks {
            // SAFETY: this function's contract.
            unsafe { release(block) };
        }
        // SAFETY: null or a valid nic, whose table is its owner's.
        if let Some(nic) = unsafe { self.nic.as_mut() } {
            // SAFETY: every object has a table, and every table a close.
            let close = unsafe { (*nic.fid.ops).close };
            // SAFETY: the nic's own function, for the nic.
            unsafe { close(&mut nic.fid) };
        }
    }
}

/// Frees a block.
///
/// # Safety
/// `block` is null or allocated with malloc, and no longer used.
pub(super) unsafe fn release<T>(block: *mut T) {
    // SAFETY: this function's contract.
    unsafe { libc::free(block.cast()) };
}
