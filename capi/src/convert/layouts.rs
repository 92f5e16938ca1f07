//! The layouts of infos in the releases of libfabric: of callers that were linked against older
//! ones, and of loaded providers. Structures only ever grew at their ends.

use crate::ffi::ptr::widen;
use ofi_abi::{fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr};
use ofi_core::Version;

/// Sizes in bytes of the structures in one version of the layout.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    info: usize,
    domain: usize,
    ep: usize,
    tx: usize,
    /// Bytes of fi_fabric_attr without the padding at its end.
    pub(crate) fabric: usize,
}

pub(crate) const V1_0: Layout = Layout { info: 112, domain: 120, ep: 80, tx: 72, fabric: 28 };
pub(crate) const V1_1: Layout = Layout { info: 112, domain: 184, ep: 96, tx: 72, fabric: 32 };
pub(crate) const V1_2: Layout = Layout { info: 120, ..V1_1 };
pub(crate) const V1_3: Layout = Layout { domain: 192, tx: 80, ..V1_2 };
pub(crate) const V1_7: Layout = Layout { domain: 200, ..V1_3 };
pub(crate) const V1_8: Layout = Layout { domain: 208, ..V1_7 };
const CURRENT: Layout = Layout { domain: size_of::<fi_domain_attr>(), ..V1_8 };

impl Layout {
    /// The layout of headers of that interface version.
    pub(crate) fn of(api: Version) -> Self {
        let since = [
            (Version::new(2, 5), CURRENT),
            (Version::new(2, 0), V1_8),
            (Version::new(1, 20), V1_7),
            (Version::new(1, 9), V1_3),
            (Version::new(1, 7), V1_2),
            (Version::new(1, 5), V1_1),
        ];
        since.into_iter().find(|(first, _)| api >= *first).map_or(V1_0, |(_, layout)| layout)
    }
}

/// Calls `with` with a current copy of an older info: its attribute structures are widened, its
/// other members are the caller's.
///
/// # Safety
/// `info` is null or valid in that layout.
pub(crate) unsafe fn with_current<R>(
    info: *const fi_info,
    layout: Layout,
    with: impl FnOnce(*const fi_info) -> R,
) -> R {
    // SAFETY: null or valid in that layout; pointers and numbers may be zero.
    let Some(mut view) = (unsafe { widen(info, layout.info) }) else { return with(core::ptr::null()) };
    // SAFETY: as above.
    let mut tx: Option<fi_tx_attr> = unsafe { widen(view.tx_attr, layout.tx) };
    // SAFETY: as above; this structure never changed.
    let mut rx: Option<fi_rx_attr> = unsafe { widen(view.rx_attr, size_of::<fi_rx_attr>()) };
    // SAFETY: as above.
    let mut ep: Option<fi_ep_attr> = unsafe { widen(view.ep_attr, layout.ep) };
    // SAFETY: as above.
    let mut domain: Option<fi_domain_attr> = unsafe { widen(view.domain_attr, layout.domain) };
    // SAFETY: as above.
    let mut fabric: Option<fi_fabric_attr> = unsafe { widen(view.fabric_attr, layout.fabric) };
    fn place<T>(part: &mut Option<T>) -> *mut T {
        part.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut)
    }
    view.next = core::ptr::null_mut();
    view.tx_attr = place(&mut tx);
    view.rx_attr = place(&mut rx);
    view.ep_attr = place(&mut ep);
    view.domain_attr = place(&mut domain);
    view.fabric_attr = place(&mut fabric);
    with(&view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_release_have_the_layout_of_their_time() {
        let domain = |major, minor| Layout::of(Version::new(major, minor)).domain;
        assert_eq!([domain(1, 4), domain(1, 5), domain(1, 8), domain(1, 9)], [120, 184, 184, 192]);
        assert_eq!([domain(1, 19), domain(1, 20), domain(2, 0), domain(2, 4)], [192, 200, 208, 208]);
        assert_eq!([domain(2, 5), domain(2, 9)], [224, 224]);
        assert_eq!([Layout::of(Version::new(1, 6)).info, Layout::of(Version::new(1, 7)).info], [112, 120]);
    }
}
