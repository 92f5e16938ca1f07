//! The structures of libibverbs and librdmacm (`infiniband/verbs.h`, `rdma/rdma_cma.h`), as far as
//! this provider uses them. Both libraries keep these layouts: programs inline functions over them.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

/// `struct ibv_device` up to its transport; two pointers come first.
#[repr(C)]
pub(crate) struct IbDevice {
    ops: [usize; 2],
    node_type: c_int,
    pub(crate) transport: c_int,
}

/// `IBV_TRANSPORT_IWARP`.
pub(crate) const TRANSPORT_IWARP: c_int = 1;

/// `struct ibv_context` up to its table of calls.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *const IbDevice,
    pub(crate) ops: ContextOps,
}

/// `struct ibv_context_ops`; the calls that are not used are words.
#[repr(C)]
pub(crate) struct ContextOps {
    before_alloc_mw: [usize; 7],
    pub(crate) windows: WindowOps,
    create_cq: usize,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    before_post_srq_recv: [usize; 7],
    pub(crate) post_srq_recv: Option<unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    before_post_send: [usize; 4],
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    behind: [usize; 5],
}

/// The calls of [`ContextOps`] for memory windows; none on a device without them.
#[repr(C)]
pub(crate) struct WindowOps {
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    bind_mw: usize,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
}

/// `struct ibv_device_attr`, as far as it is used.
#[repr(C)]
pub(crate) struct DeviceAttr {
    before_vendor: [u32; 24],
    pub(crate) vendor_id: u32,
    before_flags: [u32; 4],
    pub(crate) device_cap_flags: u32,
    before_max_srq: [u32; 23],
    pub(crate) max_srq: c_int,
    behind_max_srq: [u32; 4],
}

impl DeviceAttr {
    pub(crate) const EMPTY: Self = Self {
        before_vendor: [0; 24],
        vendor_id: 0,
        before_flags: [0; 4],
        device_cap_flags: 0,
        before_max_srq: [0; 23],
        max_srq: 0,
        behind_max_srq: [0; 4],
    };
}

/// The vendor of rxe, the kernel's software device.
pub(crate) const VENDOR_RXE: u32 = 0xff_ffff;

/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`: windows that one queue pair's peer can use.
pub(crate) const DEVICE_WINDOWS_OF_PAIRS: u32 = 1 << 24;

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
}

/// `struct ibv_cq`, whose first member is the context.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
}

/// `struct ibv_srq`, whose first member is the context.
#[repr(C)]
pub(crate) struct Srq {
    context: *mut Context,
}

/// `struct ibv_srq_init_attr` with its `struct ibv_srq_attr`.
#[repr(C)]
pub(crate) struct SrqInitAttr {
    context: *mut c_void,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
}

impl SrqInitAttr {
    /// A queue with room for so many receives of one piece each.
    pub(crate) const fn new(max_wr: u32) -> Self {
        Self { context: core::ptr::null_mut(), max_wr, max_sge: 1, limit: 0 }
    }
}

/// `struct ibv_qp_attr`, as far as it is used.
#[repr(C)]
pub(crate) struct QpAttr {
    before_reads: [u32; 31],
    before_depth: [u8; 2],
    /// Reads of this side that may be under way.
    pub(crate) max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
    min_rnr_timer: u8,
    behind_timer: [u8; 15],
}

impl QpAttr {
    pub(crate) const EMPTY: Self = Self {
        before_reads: [0; 31],
        before_depth: [0; 2],
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        behind_timer: [0; 15],
    };

    /// For [`QP_MIN_RNR_TIMER`].
    pub(crate) const fn with_timer(min_rnr_timer: u8) -> Self {
        Self { min_rnr_timer, ..Self::EMPTY }
    }
}

/// `IBV_QP_MAX_QP_RD_ATOMIC`.
pub(crate) const QP_MAX_QP_RD_ATOMIC: c_int = 0x2000;
/// `IBV_QP_MIN_RNR_TIMER`.
pub(crate) const QP_MIN_RNR_TIMER: c_int = 0x8000;

/// `struct ibv_qp` up to its number.
#[repr(C)]
pub(crate) struct Qp {
    context: *mut Context,
    before_number: [usize; 5],
    handle: u32,
    pub(crate) number: u32,
}

/// `struct ibv_ah_attr`, which the connection manager fills.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AhAttr {
    /// The address of the port or the group that the way leads to.
    pub(crate) gid: Gid,
    before_lid: u64,
    /// Its local identifier in an InfiniBand subnet.
    pub(crate) lid: u16,
    others: [u16; 3],
}

/// `union ibv_gid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gid([u64; 2]);

/// `struct ibv_ah`.
#[repr(C)]
pub(crate) struct Ah {
    context: *mut Context,
}

/// `struct ibv_port_attr`, with room for what libraries may add.
#[repr(C)]
pub(crate) struct PortAttr {
    state: c_int,
    max_mtu: c_int,
    /// 1 for 256 bytes, and each step doubles it.
    pub(crate) active_mtu: c_int,
    before_link_layer: [u8; 34],
    pub(crate) link_layer: u8,
    others: [u8; 209],
}

impl PortAttr {
    pub(crate) const EMPTY: Self =
        Self { state: 0, max_mtu: 0, active_mtu: 0, before_link_layer: [0; 34], link_layer: 0, others: [0; 209] };
}

/// `IBV_LINK_LAYER_ETHERNET`.
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct CompChannel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
    users: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(crate) lkey: u32,
    rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct Mw {
    context: *mut Context,
    pd: *mut Pd,
    pub(crate) rkey: u32,
    handle: u32,
    kind: c_int,
}

/// `IBV_MW_TYPE_2`.
pub(crate) const MW_TYPE_2: c_int = 2;

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

impl Sge {
    pub(crate) const EMPTY: Self = Self { addr: 0, length: 0, lkey: 0 };
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_send_wr`; the members behind `imm_data` depend on the operation: of a read, the
/// address in the peer's memory, then the key in the first half of the next word; of a packet, the
/// address handle, then the number and the key of the peer's queue pair; of binding a window, from
/// the sixth word on, the window, its new key in half a word, the registration, the address, the
/// length and the access. `imm_data` is also the key of the window that a segment ends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: u32,
    pub(crate) imm_data: u32,
    pub(crate) others: [u64; 11],
}

impl SendWr {
    pub(crate) const EMPTY: Self = Self {
        wr_id: 0,
        next: core::ptr::null_mut(),
        sg_list: core::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        others: [0; 11],
    };
}

/// `IBV_WR_SEND`.
pub(crate) const WR_SEND: c_int = 2;
/// `IBV_WR_RDMA_READ`.
pub(crate) const WR_RDMA_READ: c_int = 4;
/// `IBV_WR_BIND_MW`.
pub(crate) const WR_BIND_MW: c_int = 8;
/// `IBV_WR_SEND_WITH_INV`: the peer's device ends a window of the peer when the segment arrives.
pub(crate) const WR_SEND_WITH_INV: c_int = 9;
/// `IBV_SEND_SIGNALED`.
pub(crate) const SEND_SIGNALED: u32 = 2;
/// `IBV_SEND_INLINE`: the call copies the bytes into the work, so the device need not fetch them.
pub(crate) const SEND_INLINE: u32 = 8;
/// `IBV_ACCESS_LOCAL_WRITE`.
pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_READ`.
pub(crate) const ACCESS_REMOTE_READ: u64 = 4;
/// `IBV_ACCESS_MW_BIND`: windows may open it to peers.
pub(crate) const ACCESS_MW_BIND: c_int = 0x10;
/// `IBV_QPT_RC`.
pub(crate) const QPT_RC: c_int = 2;
/// `IBV_QPT_UD`.
pub(crate) const QPT_UD: c_int = 4;
/// `IBV_WC_WR_FLUSH_ERR`.
pub(crate) const WC_FLUSHED: c_int = 5;
/// `IBV_WC_RETRY_EXC_ERR`.
pub(crate) const WC_RETRY_EXCEEDED: c_int = 12;

/// `struct ibv_wc`; the members behind `byte_len` are for other operations.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkCompletion {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    opcode: c_int,
    vendor_err: u32,
    pub(crate) byte_len: u32,
    /// The key of the window that a segment has ended, with [`WC_WITH_INV`].
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    others: [u32; 2],
}

/// `IBV_WC_GRH`.
pub(crate) const WC_GRH: u32 = 1;
/// `IBV_WC_WITH_INV`.
pub(crate) const WC_WITH_INV: u32 = 8;
/// The same as rxe reports it: with the kernel's value.
pub(crate) const WC_WITH_INV_OF_RXE: u32 = 4;

impl WorkCompletion {
    pub(crate) const EMPTY: Self = Self {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        invalidated_rkey: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        others: [0; 2],
    };
}

/// `struct ibv_qp_init_attr` with its `struct ibv_qp_cap`.
#[repr(C)]
pub(crate) struct QpInitAttr {
    qp_context: *mut c_void,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut Srq,
    max_send_wr: u32,
    max_recv_wr: u32,
    max_send_sge: u32,
    max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
    qp_type: c_int,
    sq_sig_all: c_int,
}

impl QpInitAttr {
    /// With a shared receive queue instead of one of its own.
    pub(crate) fn with_shared(mut self, srq: *mut Srq) -> Self {
        self.srq = srq;
        self.max_recv_wr = 0;
        self
    }

    /// A queue pair with room for so many sends and receives of one piece each, on these queues.
    pub(crate) fn new(qp_type: c_int, send: (*mut Cq, u16), receive: (*mut Cq, u16)) -> Self {
        Self {
            qp_context: core::ptr::null_mut(),
            send_cq: send.0,
            recv_cq: receive.0,
            srq: core::ptr::null_mut(),
            max_send_wr: send.1.into(),
            max_recv_wr: receive.1.into(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            qp_type,
            sq_sig_all: 0,
        }
    }
}

/// `struct sockaddr_storage`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage(pub(crate) [u8; 128]);

/// `struct rdma_cm_id` up to the number of its port.
#[repr(C)]
pub(crate) struct CmId {
    pub(crate) verbs: *mut Context,
    channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut Qp,
    pub(crate) source: Storage,
    pub(crate) destination: Storage,
    behind_addresses: [u64; 7],
    port_space: c_int,
    pub(crate) port: u8,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) fd: c_int,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ConnParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `struct rdma_ud_param`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdParam {
    private_data: *const c_void,
    private_data_len: u8,
    pub(crate) way: AhAttr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// The union in `struct rdma_cm_event`: that of the identifier's port space.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union EventParam {
    pub(crate) conn: ConnParam,
    pub(crate) ud: UdParam,
}

/// `struct rdma_cm_event`.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listen_id: *mut CmId,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) param: EventParam,
}

/// `RDMA_PS_TCP`: ports of connections.
pub(crate) const PS_TCP: c_int = 0x106;
/// `RDMA_PS_UDP`: ports of unreliable queue pairs.
pub(crate) const PS_UDP: c_int = 0x111;

/// `enum rdma_cm_event_type`.
pub(crate) mod event {
    use core::ffi::c_int;
    pub(crate) const ADDR_RESOLVED: c_int = 0;
    pub(crate) const ADDR_ERROR: c_int = 1;
    pub(crate) const ROUTE_RESOLVED: c_int = 2;
    pub(crate) const ROUTE_ERROR: c_int = 3;
    pub(crate) const CONNECT_REQUEST: c_int = 4;
    pub(crate) const CONNECT_ERROR: c_int = 6;
    pub(crate) const UNREACHABLE: c_int = 7;
    pub(crate) const REJECTED: c_int = 8;
    pub(crate) const ESTABLISHED: c_int = 9;
    pub(crate) const DISCONNECTED: c_int = 10;
    pub(crate) const DEVICE_REMOVAL: c_int = 11;
    pub(crate) const MULTICAST_JOIN: c_int = 12;
    pub(crate) const MULTICAST_ERROR: c_int = 13;
}

// What a C compiler says on a machine of 64 bits.
const _: () = assert!(offset_of!(IbDevice, transport) == 20);
const _: () = assert!(offset_of!(Context, ops) == 8 && size_of::<ContextOps>() == 256);
const _: () = assert!(offset_of!(ContextOps, poll_cq) == 88 && offset_of!(ContextOps, req_notify_cq) == 96);
const _: () = assert!(offset_of!(ContextOps, post_send) == 200 && offset_of!(ContextOps, post_recv) == 208);
const _: () = assert!(offset_of!(ContextOps, windows) == 56 && offset_of!(WindowOps, dealloc_mw) == 16);
const _: () = assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, vendor_id) == 96);
const _: () = assert!(offset_of!(DeviceAttr, device_cap_flags) == 116);
const _: () = assert!(offset_of!(DeviceAttr, max_srq) == 212 && offset_of!(ContextOps, post_srq_recv) == 160);
const _: () = assert!(size_of::<SrqInitAttr>() == 24 && offset_of!(SrqInitAttr, max_wr) == 8);
const _: () = assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, min_rnr_timer) == 128);
const _: () = assert!(size_of::<Mw>() == 32 && offset_of!(Mw, rkey) == 16);
const _: () = assert!(
    offset_of!(WorkCompletion, qp_num) == 28
        && offset_of!(WorkCompletion, invalidated_rkey) == 24
        && offset_of!(WorkCompletion, wc_flags) == 36
);
const _: () = assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, imm_data) == 36);
const _: () = assert!(size_of::<RecvWr>() == 32 && size_of::<Sge>() == 16);
const _: () = assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, byte_len) == 20);
const _: () = assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52);
const _: () = assert!(offset_of!(SendWr, others) == 40 && offset_of!(Mr, rkey) == 40);
const _: () = assert!(offset_of!(Mr, lkey) == 36 && offset_of!(CompChannel, fd) == 8);
const _: () = assert!(offset_of!(CmId, source) == 32 && offset_of!(CmId, destination) == 160);
const _: () = assert!(size_of::<ConnParam>() == 24 && offset_of!(ConnParam, qp_num) == 16);
const _: () = assert!(offset_of!(CmEvent, event) == 16 && offset_of!(CmEvent, param) == 24);
const _: () = assert!(size_of::<CmEvent>() == 80 && offset_of!(CmId, port) == 348 && offset_of!(Qp, number) == 52);
const _: () = assert!(offset_of!(UdParam, way) == 16 && offset_of!(UdParam, qp_num) == 48 && size_of::<AhAttr>() == 32);
const _: () = assert!(offset_of!(AhAttr, lid) == 24 && size_of::<Gid>() == 16);
const _: () = assert!(offset_of!(WorkCompletion, src_qp) == 32 && offset_of!(PortAttr, active_mtu) == 8);
const _: () = assert!(offset_of!(PortAttr, link_layer) == 46 && size_of::<PortAttr>() == 256);
