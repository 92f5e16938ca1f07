//! The send and receive families (fi_msg(3), fi_tagged(3)): maps eighteen calls to two operation
//! descriptors, compiled once for each type of endpoint.

use crate::endpoint::data_path::DataPath;
use crate::ffi::ptr::posted;
use core::ffi::c_void;
use core::marker::PhantomData;
use ofi_abi::{fi_addr_t, fi_msg, fi_msg_tagged, fi_ops_msg, fi_ops_tagged, fid_ep, iovec};
use ofi_core::{Caps, Errno, FiAddr, OpFlags};
use ofi_engine::op::{AtomicCall, MessageOps, OneSidedOps, RecvOp, RmaOp, SendOp};
use ofi_memory::{Buffer, Span};

/// The largest number of elements in a vector.
pub(super) const IOV_LIMIT: usize = 8;

/// The message tables for one type of endpoint.
pub(crate) struct Tables<E>(PhantomData<E>);

/// The engine type of disabled tables, for capabilities that were not requested: the calls return
/// ENOSYS. It has no fields, so `Tables<NotRequested>` fits every endpoint.
pub(crate) struct NotRequested;

impl MessageOps for NotRequested {
    fn send(&self, _: SendOp) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn receive(&self, _: RecvOp) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}

impl OneSidedOps for NotRequested {
    fn rma(&self, _: RmaOp) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    fn atomic(&self, _: AtomicCall) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
}

/// The tables for these capabilities: those not requested are disabled (fi_getinfo(3)). Messages
/// are enabled if no kind of transfer is requested.
pub(crate) fn tables<E: MessageOps>(caps: Caps) -> (&'static fi_ops_msg, &'static fi_ops_tagged) {
    let (messages, tagged) = kinds(caps);
    (
        if messages { Tables::<E>::MSG } else { Tables::<NotRequested>::MSG },
        if tagged { Tables::<E>::TAGGED } else { Tables::<NotRequested>::TAGGED },
    )
}

/// Whether these capabilities enable messages, and tagged messages.
pub(super) fn kinds(caps: Caps) -> (bool, bool) {
    let others = Caps::TAGGED | Caps::RMA | Caps::ATOMIC;
    (caps.contains(Caps::MSG) || !caps.intersects(others), caps.contains(Caps::TAGGED))
}

impl<E: MessageOps> Tables<E> {
    pub(crate) const MSG: &'static fi_ops_msg = &fi_ops_msg {
        size: size_of::<fi_ops_msg>(),
        recv: recv::<E>,
        recvv: recvv::<E>,
        recvmsg: recvmsg::<E>,
        send: send::<E>,
        sendv: sendv::<E>,
        sendmsg: sendmsg::<E>,
        inject: inject::<E>,
        senddata: senddata::<E>,
        injectdata: injectdata::<E>,
    };
    pub(crate) const TAGGED: &'static fi_ops_tagged = &fi_ops_tagged {
        size: size_of::<fi_ops_tagged>(),
        recv: trecv::<E>,
        recvv: trecvv::<E>,
        recvmsg: trecvmsg::<E>,
        send: tsend::<E>,
        sendv: tsendv::<E>,
        sendmsg: tsendmsg::<E>,
        inject: tinject::<E>,
        senddata: tsenddata::<E>,
        injectdata: tinjectdata::<E>,
    };
}

/// The object, and the engine's endpoint.
///
/// # Safety
/// `ep` is a living object of ours that begins with a [`DataPath`], and the table that holds the
/// calling thunk was made for it, with its engine's type or with [`NotRequested`].
#[inline]
pub(super) unsafe fn parts<'a, E>(ep: *mut fid_ep) -> (&'a DataPath, &'a E) {
    // SAFETY: the table that holds this thunk is installed only in objects that begin with a
    // `DataPath`, and fi_close(3) forbids calls after it.
    let object = unsafe { &*ep.cast::<DataPath>() };
    // SAFETY: `engine_ptr` was made from an `E` together with this table, and lives as long as the
    // object; or `E` has no bytes, for which any non-null pointer is valid.
    let engine = unsafe { &*object.engine_ptr.cast::<E>() };
    (object, engine)
}

/// A buffer of one piece.
///
/// # Safety
/// As for [`Span::new`].
#[inline]
pub(super) unsafe fn one(base: *const c_void, len: usize) -> Buffer {
    // SAFETY: the application keeps the buffer valid until the completion (fi_msg(3)), or, for an
    // inject call, until the call returns, after which the engine has its own copy.
    Buffer::One(unsafe { Span::new(base.cast_mut().cast(), len) })
}

/// A buffer of several pieces.
///
/// # Safety
/// `iov` is null or has `count` elements, each as for [`Span::new`].
pub(super) unsafe fn many(iov: *const iovec, count: usize) -> Result<Buffer, Errno> {
    if count > IOV_LIMIT || count > 0 && iov.is_null() {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(Buffer::empty());
    }
    // SAFETY: not null, so `count` elements are there.
    let pieces = unsafe { core::slice::from_raw_parts(iov, count) };
    if let [piece] = pieces {
        // SAFETY: the application keeps each piece valid until the completion.
        return Ok(unsafe { one(piece.iov_base, piece.iov_len) });
    }
    if pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.iov_len)).is_none() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the application keeps each piece valid until the completion.
    Ok(Buffer::gather(pieces.iter().map(|piece| unsafe { Span::new(piece.iov_base.cast(), piece.iov_len) })))
}

impl DataPath {
    #[inline]
    pub(super) fn tx_defaults(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.defaults.tx())
    }

    #[inline]
    fn rx_defaults(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.defaults.rx())
    }

    #[inline]
    fn tagged_rx_defaults(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.defaults.tagged_rx())
    }

    /// Flags of a call that passes its own: they replace the defaults, except for the completion
    /// level if they contain none.
    pub(super) fn tx_call(&self, flags: u64) -> OpFlags {
        const LEVELS: OpFlags = OpFlags::INJECT_COMPLETE
            .union(OpFlags::TRANSMIT_COMPLETE)
            .union(OpFlags::DELIVERY_COMPLETE)
            .union(OpFlags::MATCH_COMPLETE)
            .union(OpFlags::COMMIT_COMPLETE);
        let flags = OpFlags::from_bits_retain(flags);
        if flags.intersects(LEVELS) { flags } else { flags | (self.tx_defaults() & LEVELS) }
    }
}

/// The send that a message structure describes.
///
/// # Safety
/// `msg` is null or valid with its vector, whose buffers are valid until the completion.
#[inline]
pub(crate) unsafe fn send_op(object: &DataPath, msg: *const fi_msg, flags: u64) -> Result<SendOp, Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    let flags = object.tx_call(flags);
    let data = flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data);
    // SAFETY: this function's contract.
    let buffer = unsafe { many(msg.msg_iov, msg.iov_count) }?;
    let (dest, context) = (FiAddr(msg.addr), msg.context.addr());
    Ok(SendOp { dest, buffer, context, tag: None, data, flags, inject: false })
}

/// The same with a tag.
///
/// # Safety
/// As for [`send_op`].
#[inline]
pub(crate) unsafe fn tagged_send_op(object: &DataPath, msg: *const fi_msg_tagged, flags: u64) -> Result<SendOp, Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    let flags = object.tx_call(flags);
    let data = flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data);
    // SAFETY: this function's contract.
    let buffer = unsafe { many(msg.msg_iov, msg.iov_count) }?;
    let (dest, context) = (FiAddr(msg.addr), msg.context.addr());
    Ok(SendOp { dest, buffer, context, tag: Some(msg.tag), data, flags, inject: false })
}

/// The buffer of a receive call. A discard ignores the parameters (fi_tagged(3)).
///
/// # Safety
/// As for [`many`], unless `flags` have FI_DISCARD.
#[inline]
unsafe fn receive_buffer(iov: *const iovec, count: usize, flags: u64) -> Result<Buffer, Errno> {
    if flags & OpFlags::DISCARD.bits() != 0 {
        return Ok(Buffer::empty());
    }
    // SAFETY: this function's contract.
    unsafe { many(iov, count) }
}

/// The receive that a message structure describes.
///
/// # Safety
/// As for [`send_op`].
#[inline]
pub(crate) unsafe fn receive_op(msg: *const fi_msg, flags: u64) -> Result<RecvOp, Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    // SAFETY: this function's contract.
    let buffer = unsafe { receive_buffer(msg.msg_iov, msg.iov_count, flags) }?;
    let (src, context) = (FiAddr(msg.addr), msg.context.addr());
    Ok(RecvOp { src, buffer, context, tag: None, flags: OpFlags::from_bits_retain(flags) })
}

/// The same with a tag.
///
/// # Safety
/// As for [`send_op`].
#[inline]
pub(crate) unsafe fn tagged_receive_op(msg: *const fi_msg_tagged, flags: u64) -> Result<RecvOp, Errno> {
    // SAFETY: this function's contract.
    let msg = unsafe { msg.as_ref() }.ok_or(Errno::EINVAL)?;
    // SAFETY: this function's contract.
    let buffer = unsafe { receive_buffer(msg.msg_iov, msg.iov_count, flags) }?;
    let (src, context, tag) = (FiAddr(msg.addr), msg.context.addr(), Some((msg.tag, msg.ignore)));
    Ok(RecvOp { src, buffer, context, tag, flags: OpFlags::from_bits_retain(flags) })
}

/// The parameters that differ between the send calls.
struct Sending {
    tag: Option<u64>,
    data: Option<u64>,
    inject: bool,
}

const PLAIN: Sending = Sending { tag: None, data: None, inject: false };

#[inline]
fn submit<E: MessageOps>(
    engine: &E,
    buffer: Buffer,
    dest: fi_addr_t,
    context: *mut c_void,
    flags: OpFlags,
    kind: Sending,
) -> isize {
    let Sending { tag, data, inject: quiet } = kind;
    posted(engine.send(SendOp { dest: FiAddr(dest), buffer, context: context.addr(), tag, data, flags, inject: quiet }))
}

macro_rules! thunks {
    ($($(#[$doc:meta])* $name:ident($object:ident, $engine:ident; $($arg:ident: $kind:ty),*) $body:block)*) => {$(
        $(#[$doc])*
        unsafe extern "C" fn $name<E: MessageOps>(ep: *mut fid_ep, $($arg: $kind),*) -> isize {
            // SAFETY: C calls this thunk through the table of the endpoint that it passes.
            let ($object, $engine) = unsafe { parts::<E>(ep) };
            $body
        }
    )*};
}

thunks! {
    send(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, dest: fi_addr_t, context: *mut c_void) {
        // SAFETY: fi_send(3) lends the buffer until the completion.
        submit(engine, unsafe { one(buf, len) }, dest, context, object.tx_defaults(), PLAIN)
    }
    sendv(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, dest: fi_addr_t, context: *mut c_void) {
        // SAFETY: fi_sendv(3) lends the buffers until the completion.
        match unsafe { many(iov, count) } {
            Ok(buffer) => submit(engine, buffer, dest, context, object.tx_defaults(), PLAIN),
            Err(errno) => posted(Err(errno)),
        }
    }
    sendmsg(object, engine; msg: *const fi_msg, flags: u64) {
        // SAFETY: null or a valid message by fi_sendmsg(3), which lends the buffers until the
        // completion.
        posted(unsafe { send_op(object, msg, flags) }.and_then(|op| engine.send(op)))
    }
    inject(object, engine; buf: *const c_void, len: usize, dest: fi_addr_t) {
        let _ = object;
        let kind = Sending { inject: true, ..PLAIN };
        // SAFETY: fi_inject(3) lends the buffer for the call.
        submit(engine, unsafe { one(buf, len) }, dest, core::ptr::null_mut(), OpFlags::INJECT, kind)
    }
    senddata(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, dest: fi_addr_t, context: *mut c_void) {
        let kind = Sending { data: Some(data), ..PLAIN };
        // SAFETY: fi_senddata(3) lends the buffer until the completion.
        submit(engine, unsafe { one(buf, len) }, dest, context, object.tx_defaults(), kind)
    }
    injectdata(object, engine; buf: *const c_void, len: usize, data: u64, dest: fi_addr_t) {
        let _ = object;
        let kind = Sending { data: Some(data), inject: true, ..PLAIN };
        // SAFETY: fi_injectdata(3) lends the buffer for the call.
        submit(engine, unsafe { one(buf, len) }, dest, core::ptr::null_mut(), OpFlags::INJECT, kind)
    }
    tsend(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, dest: fi_addr_t, tag: u64, context: *mut c_void) {
        let kind = Sending { tag: Some(tag), ..PLAIN };
        // SAFETY: fi_tsend(3) lends the buffer until the completion.
        submit(engine, unsafe { one(buf, len) }, dest, context, object.tx_defaults(), kind)
    }
    tsendv(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, dest: fi_addr_t, tag: u64, context: *mut c_void) {
        // SAFETY: fi_tsendv(3) lends the buffers until the completion.
        match unsafe { many(iov, count) } {
            Ok(buffer) => {
                submit(engine, buffer, dest, context, object.tx_defaults(), Sending { tag: Some(tag), ..PLAIN })
            }
            Err(errno) => posted(Err(errno)),
        }
    }
    tsendmsg(object, engine; msg: *const fi_msg_tagged, flags: u64) {
        // SAFETY: null or a valid message by fi_tsendmsg(3), which lends the buffers until the
        // completion.
        posted(unsafe { tagged_send_op(object, msg, flags) }.and_then(|op| engine.send(op)))
    }
    tinject(object, engine; buf: *const c_void, len: usize, dest: fi_addr_t, tag: u64) {
        let _ = object;
        let kind = Sending { tag: Some(tag), data: None, inject: true };
        // SAFETY: fi_tinject(3) lends the buffer for the call.
        submit(engine, unsafe { one(buf, len) }, dest, core::ptr::null_mut(), OpFlags::INJECT, kind)
    }
    tsenddata(object, engine; buf: *const c_void, len: usize, _desc: *mut c_void, data: u64, dest: fi_addr_t, tag: u64, context: *mut c_void) {
        let kind = Sending { tag: Some(tag), data: Some(data), inject: false };
        // SAFETY: fi_tsenddata(3) lends the buffer until the completion.
        submit(engine, unsafe { one(buf, len) }, dest, context, object.tx_defaults(), kind)
    }
    tinjectdata(object, engine; buf: *const c_void, len: usize, data: u64, dest: fi_addr_t, tag: u64) {
        let _ = object;
        let kind = Sending { tag: Some(tag), data: Some(data), inject: true };
        // SAFETY: fi_tinjectdata(3) lends the buffer for the call.
        submit(engine, unsafe { one(buf, len) }, dest, core::ptr::null_mut(), OpFlags::INJECT, kind)
    }
    recv(object, engine; buf: *mut c_void, len: usize, _desc: *mut c_void, src: fi_addr_t, context: *mut c_void) {
        // SAFETY: fi_recv(3) lends the buffer until the completion.
        let buffer = unsafe { one(buf, len) };
        receive(engine, buffer, src, None, context, object.rx_defaults())
    }
    recvv(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, src: fi_addr_t, context: *mut c_void) {
        // SAFETY: fi_recvv(3) lends the buffers until the completion.
        match unsafe { many(iov, count) } {
            Ok(buffer) => receive(engine, buffer, src, None, context, object.rx_defaults()),
            Err(errno) => posted(Err(errno)),
        }
    }
    recvmsg(object, engine; msg: *const fi_msg, flags: u64) {
        let _ = object;
        // SAFETY: null or a valid message by fi_recvmsg(3), which lends the buffers until the
        // completion.
        posted(unsafe { receive_op(msg, flags) }.and_then(|op| engine.receive(op)))
    }
    trecv(object, engine; buf: *mut c_void, len: usize, _desc: *mut c_void, src: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) {
        // SAFETY: fi_trecv(3) lends the buffer until the completion.
        let buffer = unsafe { one(buf, len) };
        receive(engine, buffer, src, Some((tag, ignore)), context, object.tagged_rx_defaults())
    }
    trecvv(object, engine; iov: *const iovec, _desc: *mut *mut c_void, count: usize, src: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) {
        // SAFETY: fi_trecvv(3) lends the buffers until the completion.
        match unsafe { many(iov, count) } {
            Ok(buffer) => receive(engine, buffer, src, Some((tag, ignore)), context, object.tagged_rx_defaults()),
            Err(errno) => posted(Err(errno)),
        }
    }
    trecvmsg(object, engine; msg: *const fi_msg_tagged, flags: u64) {
        let _ = object;
        // SAFETY: null or a valid message by fi_trecvmsg(3), which lends the buffers until the
        // completion.
        posted(unsafe { tagged_receive_op(msg, flags) }.and_then(|op| engine.receive(op)))
    }
}

#[inline]
fn receive<E: MessageOps>(
    engine: &E,
    buffer: Buffer,
    src: fi_addr_t,
    tag: Option<(u64, u64)>,
    context: *mut c_void,
    flags: OpFlags,
) -> isize {
    posted(engine.receive(RecvOp { src: FiAddr(src), buffer, context: context.addr(), tag, flags }))
}
