//! Entries of queues in their C layouts.

use ofi_abi::fi_cq_err_entry;
use ofi_core::Completion;

/// The entry of a completion, without an error.
pub(super) fn err_entry(completion: &Completion) -> fi_cq_err_entry {
    let Completion { context, flags, len, buf, data, tag, src } = *completion;
    fi_cq_err_entry {
        op_context: core::ptr::with_exposed_provenance_mut(context),
        flags: flags.bits(),
        len,
        buf: core::ptr::with_exposed_provenance_mut(buf),
        data,
        tag,
        olen: 0,
        err: 0,
        prov_errno: 0,
        err_data: core::ptr::null_mut(),
        err_data_size: 0,
        src_addr: src.0,
    }
}
