//! Event queues: what happens to many listeners and connections, in one place.

use crate::events::Wait;
use crate::msg::{ConnectionRequest, MsgEndpoint, MsgListener};
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, ready};
use ofi_core::Error;
use ofi_engine::completion::eq::EventKind;

/// What has happened to a listener or a connection (fi_eq(3)).
///
/// ```
/// # use ofi::Event;
/// fn log(number: usize, event: &Event) {
///     match event {
///         Event::ConnectionRequest(request) => println!("{number}: {:?} wants to connect", request.peer_addr()),
///         Event::Shutdown => println!("{number}: the peer has gone"),
///         Event::Failed(why) => println!("{number}: {why}"),
///         other => println!("{number}: {other:?}"),
///     }
/// }
/// # log(1, &Event::Shutdown);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer wants to connect (FI_CONNREQ).
    ConnectionRequest(ConnectionRequest),
    /// A connection has ended: the peer has closed its endpoint, or is gone (FI_SHUTDOWN).
    Shutdown,
    /// A connection has failed, or a listener (fi_eq_readerr).
    Failed(Error),
}

/// A listener or a connection, and the queue's wait for its events.
struct Source<'a> {
    wait: Wait<'a>,
    /// `None` for a connection.
    listener: Option<&'a MsgListener>,
}

impl Source<'_> {
    fn poll(&self, mut context: Option<&mut Context<'_>>) -> Poll<Event> {
        loop {
            let event = match ready!(self.wait.poll(context.as_deref_mut())) {
                Err(why) => Some(Event::Failed(why)),
                Ok(EventKind::Shutdown) => Some(Event::Shutdown),
                Ok(event) => {
                    self.listener.and_then(|listener| listener.request_of(event)).map(Event::ConnectionRequest)
                }
            };
            // The others are for the one that connects or accepts.
            if let Some(event) = event {
                return Poll::Ready(event);
            }
        }
    }
}

/// A queue of the events of listeners and connected endpoints (fi_eq(3)), for programs that handle
/// them all in one place; each has a key `K`, which its events carry.
///
/// An event goes to one reader: do not call [`MsgListener::request`] for a listener that is in a
/// queue.
///
/// ```
/// # use ofi::{EndpointType, Event, EventQueue, Fabric, Info, MsgEndpoint, MsgListener};
/// # let query = Info::builder().provider("tcp").endpoint(EndpointType::MSG);
/// # let info = query.node("127.0.0.1").source().query()?.remove(0);
/// # let fabric = Fabric::open(&info)?;
/// # let domain = fabric.domain(&info)?;
/// let listeners = [MsgListener::listen(&fabric, &info)?, MsgListener::listen(&fabric, &info)?];
/// let mut events = EventQueue::open();
/// for (number, listener) in listeners.iter().enumerate() {
///     events.add_listener(number, listener);
/// }
/// let to = listeners[1].local_addr()?;
/// # let client = async { MsgEndpoint::connect(&domain, &info, to).await };
/// # let server = async {
/// let (number, event) = events.next().await;
/// let Event::ConnectionRequest(request) = event else { panic!("the listener failed") };
/// assert_eq!(number, 1);
/// let ep = request.accept(&domain).await?;
/// # Ok::<_, ofi::Error>(ep)
/// # };
/// # let (client, server) = ofi::block_on(futures_lite::future::zip(client, server));
/// # let (client, server) = (client?, server?);
/// # drop(client);
/// # let mut events = EventQueue::open();
/// # events.add_endpoint("server", &server);
/// # assert!(matches!(ofi::block_on(events.next()), ("server", Event::Shutdown)));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Default)]
pub struct EventQueue<'a, K> {
    sources: Vec<(K, Source<'a>)>,
    /// Where the next look begins, so that a busy source does not hide the others.
    first: usize,
}

impl<K> fmt::Debug for EventQueue<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

impl<'a, K: Clone> EventQueue<'a, K> {
    /// A queue without listeners and connections (fi_eq_open).
    pub const fn open() -> Self {
        Self { sources: Vec::new(), first: 0 }
    }

    /// Has the queue report the connection requests of a listener.
    pub fn add_listener(&mut self, key: K, listener: &'a MsgListener) {
        self.sources.push((key, Source { wait: listener.wait(), listener: Some(listener) }));
    }

    /// Has the queue report the end of a connection. It leaves the queue with that.
    pub fn add_endpoint(&mut self, key: K, endpoint: &'a MsgEndpoint) {
        self.sources.push((key, Source { wait: endpoint.wait(), listener: None }));
    }

    /// Makes progress; an event that was not read, if there is one (fi_eq_read).
    pub fn read(&mut self) -> Option<(K, Event)> {
        match self.look(None) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    /// Waits for an event (fi_eq_sread), for ever if the queue has no listener and no connection.
    /// Dropping the future loses none.
    ///
    /// # Panics
    /// As an [`Operation`](crate::Operation) that is awaited where no reactor would wake it.
    pub async fn next(&mut self) -> (K, Event) {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Self::next`], for futures that are written by hand.
    ///
    /// # Panics
    /// As for [`Self::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(K, Event)> {
        self.look(Some(context))
    }

    fn look(&mut self, mut context: Option<&mut Context<'_>>) -> Poll<(K, Event)> {
        for step in 0..self.sources.len() {
            let at = (self.first + step) % self.sources.len();
            let Some((key, source)) = self.sources.get(at) else { continue };
            let Poll::Ready(event) = source.poll(context.as_deref_mut()) else { continue };
            let (key, is_connection) = (key.clone(), source.listener.is_none());
            self.first = at + 1;
            if is_connection {
                // Its end is the last event.
                self.sources.remove(at);
                self.first = at;
            }
            return Poll::Ready((key, event));
        }
        Poll::Pending
    }
}
