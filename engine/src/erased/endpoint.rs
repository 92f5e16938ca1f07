//! Endpoints and passive endpoints.

use crate::av_set::AvSet;
use crate::completion::eq::{ConnectionRequest, Owner};
use crate::datagram::Datagrams;
use crate::erased::queue::{CounterControl, QueueControl, of_lock_kind};
use crate::limits::SizeLimit;
use crate::measures::Measures;
use crate::op::{CollectiveCall, Ways};
use crate::progress::backstop::Backstop;
use crate::progress::set::Pollable;
use crate::statistics::Statistics;
use crate::transport::{Flush, Listener, Transport};
use crate::trigger::Initiator;
use crate::{AddressVector, DatagramEndpoint, Endpoint, EventQueue, PassiveEndpoint};
use core::any::Any;
use core::fmt::Debug;
use ofi_core::error::Result;
use ofi_core::{Addr, BindFlags, Errno, Error, FiAddr};
use ofi_sync::lock::LockKind;
use std::sync::Arc;

/// Control calls of an endpoint. By default it has no connection, no groups and no multi-receive
/// buffers.
pub trait EndpointControl: Debug + Send + Sync + 'static {
    /// Binds a completion queue; EDOMAIN if the queue is of another lock kind.
    fn bind_cq(&self, cq: Arc<dyn QueueControl>, flags: BindFlags) -> Result<()>;
    /// Binds a counter; EDOMAIN if the counter is of another lock kind.
    fn bind_counter(self: Arc<Self>, counter: Arc<dyn CounterControl>, flags: BindFlags) -> Result<()>;
    /// Makes progress when the counter is read, without being bound to it; EDOMAIN if the counter
    /// is of another lock kind.
    fn watch_counter(self: Arc<Self>, _counter: Arc<dyn CounterControl>) -> Result<()> {
        Ok(())
    }
    /// Undoes [`Self::watch_counter`].
    fn unwatch_counter(&self, _counter: Arc<dyn CounterControl>) {}
    /// Starts its deferred operations; `None` if it has none (fi_trigger(3)).
    fn initiator(self: Arc<Self>) -> Option<Arc<dyn Initiator>> {
        None
    }
    /// Binds an address vector.
    fn bind_av(self: Arc<Self>, av: &Arc<AddressVector>) -> Result<()>;
    /// Binds a shared receive context; EDOMAIN if it is of another lock kind.
    fn bind_rx(self: Arc<Self>, _context: Arc<dyn Any + Send + Sync>) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Binds an event queue; events of its connection name it by `owner`.
    fn bind_eq(self: Arc<Self>, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    /// Whether an event queue is bound.
    fn has_eq(&self) -> bool;
    /// Has a backstop send what it holds back, if the application makes no call that does.
    fn set_backstop(self: Arc<Self>, _backstop: &Arc<Backstop>) {}
    /// Enables it (fi_enable(3)).
    fn enable(self: Arc<Self>) -> Result<()>;
    /// Cancels the oldest operation with this context that can be canceled (fi_cancel(3)).
    fn cancel(&self, context: usize);
    /// The space below which a multi-receive buffer is released, in bytes.
    fn min_multi_recv(&self) -> usize {
        0
    }
    /// Sets what [`Self::min_multi_recv`] answers.
    fn set_min_multi_recv(&self, _least: usize) {}
    /// Serves a caller of 1.x, as [`Endpoint::serve_legacy`].
    fn serve_legacy(&self, _buffered: Option<usize>) {}
    /// FI_OPT_BUFFERED_LIMIT, in bytes; `None` if messages are not buffered.
    fn buffered_limit(&self) -> Option<usize> {
        None
    }
    /// How much of a longer buffered message is in the buffer of its entry, in bytes.
    fn buffered_min(&self) -> usize {
        0
    }
    /// Sets what [`Self::buffered_min`] answers.
    fn set_buffered_min(&self, _least: usize) -> Result<()> {
        Err(Errno::ENOPROTOOPT.into())
    }
    /// Sets what [`Self::buffered_limit`] answers.
    fn set_buffered_limit(&self, _limit: usize) -> Result<()> {
        Err(Errno::ENOPROTOOPT.into())
    }
    /// A size limit, in bytes.
    fn limit(&self, which: SizeLimit) -> usize;
    /// Changes a size limit (fi_setopt(3)).
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()>;
    /// How many sends and one-sided operations can be posted now without `AGAIN`
    /// (fi_tx_size_left).
    fn tx_size_left(&self) -> Result<usize, Errno> {
        Err(Errno::ENOSYS)
    }
    /// How many receives can be posted now without `AGAIN` (fi_rx_size_left).
    fn rx_size_left(&self) -> usize;
    /// What fi_profile(3) reports, with a list of the messages that wait for a receive, or without;
    /// ENOMEM if there is no memory for the list.
    fn measures(&self, _with_messages: bool) -> Result<Measures, Errno> {
        Ok(Measures::default())
    }
    /// What it has done since it was opened.
    fn statistics(&self) -> Statistics;
    /// The address at which peers reach it (fi_getname(3)).
    fn local_addr(&self) -> Result<Addr>;
    /// Sets the address, before it is in use (fi_setname(3)).
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    /// The peer of a connected endpoint (fi_getpeer(3)).
    fn peer_addr(&self) -> Result<Addr> {
        Err(Errno::ENOSYS.into())
    }
    /// Starts to connect (fi_connect(3)).
    fn connect(self: Arc<Self>, _to: Addr, _data: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Accepts the request (fi_accept(3)). Takes it out of `request` once only the connection
    /// itself can still fail.
    fn accept(self: Arc<Self>, _request: &mut Option<ConnectionRequest>, _data: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Ends the connection (fi_shutdown(3)).
    fn shut_down(&self) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// Joins a multicast group (fi_join(3)). Calls `joined` with the handle to send with before the
    /// join event can be read.
    fn join(self: Arc<Self>, _group: Addr, _ways: Ways, _owner: Owner, _joined: &mut dyn FnMut(FiAddr)) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }
    /// Leaves a multicast group; `ways` are as for [`Self::join`], which returned the handle.
    fn leave(&self, _group: &Addr, _ways: Ways, _handle: FiAddr, _owner: Owner) {}
    /// Joins a group (fi_join_collective) of these members, and returns its address. `parent` is a
    /// group that all of them have joined.
    fn join_group(
        self: Arc<Self>,
        _members: &AvSet,
        _parent: Option<FiAddr>,
        _ways: Ways,
        _owner: Owner,
    ) -> Result<FiAddr> {
        Err(Errno::ENOSYS.into())
    }
    /// Leaves such a group.
    fn leave_group(&self, _group: FiAddr, _owner: Owner) {}
    /// Posts a collective operation (fi_collective(3)).
    fn collective(&self, _call: CollectiveCall) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }
    /// What it is doing, to find the cause of a hang.
    fn describe(&self) -> String {
        format!("{self:?}")
    }
    /// Makes progress, for a caller that waits for one of its peers.
    fn make_progress(&self);
    /// Closes it (fi_close(3)): afterwards no buffer is touched.
    fn close(&self);
}

/// Control calls of a passive endpoint.
pub trait PassiveControl: Debug + Send + Sync + 'static {
    /// Binds the event queue for connection requests, which name it by `owner`.
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()>;
    /// The address that it listens on (fi_getname(3)).
    fn local_addr(&self) -> Result<Addr>;
    /// Sets the address, before it is in use (fi_setname(3)).
    fn set_local_addr(&self, addr: Addr) -> Result<()>;
    /// Starts to listen (fi_listen(3)).
    fn listen(self: Arc<Self>) -> Result<()>;
    /// Rejects a request (fi_reject(3)); EINVAL if it came to a passive endpoint of another
    /// provider.
    fn refuse(&self, request: ConnectionRequest, data: &[u8]) -> Result<()>;
    /// Sets how many requests may wait for an answer.
    fn set_backlog(&self, requests: usize);
    /// Stops to listen.
    fn close(&self);
}

impl<T: Transport, K: LockKind> EndpointControl for Endpoint<T, K> {
    fn bind_cq(&self, cq: Arc<dyn QueueControl>, flags: BindFlags) -> Result<()> {
        Self::bind_cq(self, &of_lock_kind(cq, "completion queue")?, flags)
    }
    fn bind_counter(self: Arc<Self>, counter: Arc<dyn CounterControl>, flags: BindFlags) -> Result<()> {
        Self::bind_counter(&self, &of_lock_kind(counter, "counter")?, flags)
    }
    fn watch_counter(self: Arc<Self>, counter: Arc<dyn CounterControl>) -> Result<()> {
        Self::watch_counter(&self, &of_lock_kind(counter, "counter")?)
    }
    fn unwatch_counter(&self, counter: Arc<dyn CounterControl>) {
        if let Ok(counter) = of_lock_kind(counter, "counter") {
            self.unwatch_counter(&counter);
        }
    }
    fn initiator(self: Arc<Self>) -> Option<Arc<dyn Initiator>> {
        Some(self)
    }
    fn bind_av(self: Arc<Self>, av: &Arc<AddressVector>) -> Result<()> {
        Self::bind_av(&self, av)
    }
    fn bind_rx(self: Arc<Self>, context: Arc<dyn Any + Send + Sync>) -> Result<()> {
        Self::bind_rx(&self, &of_lock_kind(context, "receive context")?)
    }
    fn bind_eq(self: Arc<Self>, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        Self::bind_eq(&self, eq, owner)
    }
    fn has_eq(&self) -> bool {
        self.has_eq()
    }
    fn set_backstop(self: Arc<Self>, backstop: &Arc<Backstop>) {
        Self::set_backstop(&self, backstop);
    }
    fn enable(self: Arc<Self>) -> Result<()> {
        Self::enable(&self)
    }
    fn cancel(&self, context: usize) {
        self.cancel(context);
    }
    fn min_multi_recv(&self) -> usize {
        self.min_multi_recv()
    }
    fn set_min_multi_recv(&self, least: usize) {
        self.set_min_multi_recv(least);
    }
    fn serve_legacy(&self, buffered: Option<usize>) {
        self.serve_legacy(buffered);
    }
    fn buffered_limit(&self) -> Option<usize> {
        self.buffered_limit()
    }
    fn buffered_min(&self) -> usize {
        self.buffered_min()
    }
    fn set_buffered_min(&self, least: usize) -> Result<()> {
        self.set_buffered_min(least)
    }
    fn set_buffered_limit(&self, limit: usize) -> Result<()> {
        self.set_buffered_limit(limit)
    }
    fn limit(&self, which: SizeLimit) -> usize {
        self.limit(which)
    }
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        self.set_limit(which, size)
    }
    fn tx_size_left(&self) -> Result<usize, Errno> {
        Ok(self.tx_size_left())
    }
    fn rx_size_left(&self) -> usize {
        self.rx_size_left()
    }
    fn measures(&self, with_messages: bool) -> Result<Measures, Errno> {
        self.measures(with_messages)
    }
    fn statistics(&self) -> Statistics {
        self.statistics()
    }
    fn local_addr(&self) -> Result<Addr> {
        self.local_addr()
    }
    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.set_local_addr(addr)
    }
    fn peer_addr(&self) -> Result<Addr> {
        self.peer_addr()
    }
    fn connect(self: Arc<Self>, to: Addr, data: &[u8]) -> Result<()> {
        Self::connect(&self, to, data)
    }
    fn accept(self: Arc<Self>, request: &mut Option<ConnectionRequest>, data: &[u8]) -> Result<()> {
        self.begin_connection(data)?;
        let asked = request
            .take()
            .ok_or_else(|| Error::new(Errno::EOPBADSTATE, "accept on an endpoint without a connection request"))?
            .into_asked::<T::Request>()
            .ok_or_else(|| Error::new(Errno::EINVAL, "accept a connection request from another provider"))?;
        Self::accept(&self, asked, data)
    }
    fn shut_down(&self) -> Result<(), Errno> {
        self.shut_down()
    }
    fn join_group(
        self: Arc<Self>,
        members: &AvSet,
        parent: Option<FiAddr>,
        ways: Ways,
        owner: Owner,
    ) -> Result<FiAddr> {
        Self::join_group(&self, members, parent, ways, owner)
    }
    fn leave_group(&self, group: FiAddr, owner: Owner) {
        self.leave_group(group, owner);
    }
    fn collective(&self, call: CollectiveCall) -> Result<(), Errno> {
        self.collective(call)
    }
    fn describe(&self) -> String {
        self.describe()
    }
    fn make_progress(&self) {
        self.poll();
        self.flush(Flush::All);
    }
    fn close(&self) {
        self.close();
    }
}

impl<D: Datagrams, K: LockKind> EndpointControl for DatagramEndpoint<D, K> {
    fn bind_cq(&self, cq: Arc<dyn QueueControl>, flags: BindFlags) -> Result<()> {
        Self::bind_cq(self, &of_lock_kind(cq, "completion queue")?, flags)
    }
    fn bind_counter(self: Arc<Self>, counter: Arc<dyn CounterControl>, flags: BindFlags) -> Result<()> {
        Self::bind_counter(&self, &of_lock_kind(counter, "counter")?, flags)
    }
    fn bind_av(self: Arc<Self>, av: &Arc<AddressVector>) -> Result<()> {
        Self::bind_av(&self, av)
    }
    fn bind_eq(self: Arc<Self>, eq: &Arc<EventQueue>, _owner: Owner) -> Result<()> {
        Self::bind_eq(&self, eq)
    }
    fn has_eq(&self) -> bool {
        self.has_eq()
    }
    fn enable(self: Arc<Self>) -> Result<()> {
        Self::enable(&self)
    }
    fn cancel(&self, context: usize) {
        self.cancel(context);
    }
    fn limit(&self, which: SizeLimit) -> usize {
        self.limit(which)
    }
    fn set_limit(&self, which: SizeLimit, size: usize) -> Result<()> {
        self.set_limit(which, size)
    }
    fn rx_size_left(&self) -> usize {
        self.rx_size_left()
    }
    fn statistics(&self) -> Statistics {
        self.statistics()
    }
    fn local_addr(&self) -> Result<Addr> {
        self.local_addr()
    }
    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.set_local_addr(addr)
    }
    fn join(self: Arc<Self>, group: Addr, ways: Ways, owner: Owner, joined: &mut dyn FnMut(FiAddr)) -> Result<()> {
        Self::join(&self, group, ways, owner, joined)
    }
    fn leave(&self, group: &Addr, ways: Ways, handle: FiAddr, owner: Owner) {
        self.leave(group, ways, handle, owner);
    }
    fn make_progress(&self) {
        self.poll();
        self.flush(Flush::All);
    }
    fn close(&self) {
        self.close();
    }
}

impl<L: Listener> PassiveControl for PassiveEndpoint<L> {
    fn bind_eq(&self, eq: &Arc<EventQueue>, owner: Owner) -> Result<()> {
        self.bind_eq(eq, owner)
    }
    fn local_addr(&self) -> Result<Addr> {
        self.local_addr()
    }
    fn set_local_addr(&self, addr: Addr) -> Result<()> {
        self.set_local_addr(addr)
    }
    fn listen(self: Arc<Self>) -> Result<()> {
        Self::listen(&self)
    }
    fn refuse(&self, request: ConnectionRequest, data: &[u8]) -> Result<()> {
        let asked = request
            .into_asked::<L::Request>()
            .ok_or_else(|| Error::new(Errno::EINVAL, "reject a connection request from another provider"))?;
        Self::refuse(self, asked, data)
    }
    fn set_backlog(&self, requests: usize) {
        self.set_backlog(requests);
    }
    fn close(&self) {
        self.close();
    }
}
