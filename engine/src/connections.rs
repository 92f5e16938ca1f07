//! A transport made of connections that carry messages: the short way to a provider. The medium
//! implements [`Connector`] and [`Connection`]; this file makes links of its connections, with the
//! handshake, back-pressure and orderly ends that [`Transport`] asks for.
//! It copies each payload, and each poll looks at every connection. A provider with a better way
//! implements [`Transport`] itself, as tcp and shm do.
//! Invariant: the frames of a link that the peer has not read are at most [`WINDOW`], and the last.

use crate::table::Table;
use crate::transport::{
    ConnectRequest, Down, Incoming, LinkEvents, LinkId, Listener, Payload, ShutdownState, Submitted, Transport,
    Urgency, Verdict,
};
use crate::wire::frame::{Header, Violation};
use core::fmt::Debug;
use core::time::Duration;
use ofi_core::error::Result;
use ofi_core::wait::{Descriptor, WaitObject};
use ofi_core::{Addr, Cause, Errno, Instant};

/// Frames of a link that may be unread; the reader reports each half of them.
const WINDOW: u32 = 64;
/// Messages of a link that a poll reads before it turns to the next link.
const MOST: usize = 64;

/// What connections carry. A medium that carries bytes encodes it.
#[derive(Debug)]
pub enum Message {
    /// The acceptor's hello. A refusal has one, too: the end of the connection follows.
    Answer(Vec<u8>),
    /// A copy of a frame, and how many of its bytes are its header; the rest is its payload.
    Frame(Vec<u8>, usize),
    /// The sender has read another half of a window.
    HalfRead,
    /// The sender shuts the link down: nothing follows.
    Bye,
}

/// One side of a connection. Dropping it ends the connection behind the messages that were sent.
pub trait Connection: Debug + Send + 'static {
    /// Sends a message, or keeps it until the peer takes it. It may get lost if the peer is gone,
    /// because [`Self::receive`] tells so.
    fn send(&mut self, message: Message);
    /// The next message that has arrived, if any.
    ///
    /// # Errors
    /// The connection has ended, and every message that arrived before was received.
    fn receive(&mut self) -> core::result::Result<Option<Message>, Down>;
    /// False while it keeps messages, which dropping it would lose: closing an endpoint waits for
    /// that. By default true; a connection that may keep messages overrides it.
    fn is_sent(&self) -> bool {
        true
    }
}

/// An address that connects to others, and to which others connect.
pub trait Connector: Debug + Send + 'static {
    /// A connection.
    type Connection: Connection;

    /// The address at which peers reach it.
    fn local_addr(&self) -> Addr;
    /// Asks the peer for a connection. Fails for local reasons only; without a peer that accepts
    /// it, the connection ends.
    ///
    /// # Errors
    /// The system's: it lacks memory or descriptors.
    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<Self::Connection>;
    /// The next peer that asks for a connection, if any. The medium proves the peer's address.
    fn accept(&mut self) -> Option<ConnectRequest<Self::Connection>>;
    /// Takes a connection over that another connector accepted: from now on it signals this one's
    /// wait object, and once at least, because something may have arrived before.
    ///
    /// # Errors
    /// The system's, as for [`Self::connect`].
    fn take_over(&mut self, connection: &mut Self::Connection) -> Result<()>;
    /// Signalled by everything that [`Self::accept`] and [`Connection::receive`] have to report.
    fn wait_object(&self) -> &dyn WaitObject;
    /// An unpredictable random number.
    fn random(&mut self) -> [u8; 16];
}

/// Links over the connections of a [`Connector`]; or a listener, if nothing but [`Listener`] is
/// used of it.
#[derive(Debug)]
pub struct ConnectionTransport<C: Connector> {
    connector: C,
    links: Table<Link<C::Connection>>,
}

#[derive(Debug)]
struct Link<C> {
    connection: C,
    /// The destination, until it answers.
    asked: Option<Addr>,
    /// Frames sent without a report that they were read.
    unread: u32,
    /// Frames read since the last report.
    read: u32,
    is_backed_up: bool,
}

impl<C: Connection> Link<C> {
    const fn new(connection: C, asked: Option<Addr>) -> Self {
        Self { connection, asked, unread: 0, read: 0, is_backed_up: false }
    }

    fn send_frame(&mut self, header: &Header, payload: Option<&Payload<'_>>) {
        let mut bytes = Vec::with_capacity(header.len() + payload.map_or(0, |payload| payload.len));
        bytes.extend_from_slice(header);
        if let Some(payload) = payload {
            payload.append_to(&mut bytes);
        }
        self.unread += 1;
        self.connection.send(Message::Frame(bytes, header.len()));
    }

    /// Reports what has arrived, and returns the number of messages. An error is the reason for
    /// which the link ends.
    fn read(&mut self, id: LinkId, events: &mut impl LinkEvents) -> core::result::Result<usize, Down> {
        for count in 0..MOST {
            let Some(message) = self.connection.receive().map_err(|why| self.end(why))? else { return Ok(count) };
            self.handle(id, message, events)?;
        }
        Ok(MOST)
    }

    fn handle(&mut self, id: LinkId, message: Message, events: &mut impl LinkEvents) -> core::result::Result<(), Down> {
        match message {
            Message::Answer(hello) if self.asked.take().is_some() => events.handle_connected(id, &hello)?,
            Message::Answer(_) => return Err(Down::violation("a second answer to a connect request")),
            Message::Frame(..) if self.asked.is_some() => return Err(Down::violation("a frame before the answer")),
            Message::Frame(bytes, len) => {
                let Some((header, payload)) = bytes.split_at_checked(len) else {
                    return Err(Down::violation("a frame is shorter than its header"));
                };
                let result = events.handle_frame(id, header, Incoming::Complete(payload));
                result.map_err(|Violation(what)| Down::violation(what))?;
                self.read += 1;
                if self.read == WINDOW / 2 {
                    self.read = 0;
                    self.connection.send(Message::HalfRead);
                }
            }
            Message::HalfRead => {
                let left = self.unread.checked_sub(WINDOW / 2);
                self.unread = left.ok_or_else(|| Down::violation("a report of more frames than were sent"))?;
                if core::mem::take(&mut self.is_backed_up) {
                    events.handle_send_room(id);
                }
            }
            Message::Bye => return Err(Down::new(Cause::Broken, Errno::ECONNRESET, "the peer has ended the link")),
        }
        Ok(())
    }

    /// The reason to report if the connection has ended.
    fn end(&self, why: Down) -> Down {
        match self.asked {
            Some(to) => Down::new(Cause::Connect, Errno::ECONNREFUSED, format!("connect to {to}: {}", why.text)),
            None => why,
        }
    }
}

impl<C: Connector> ConnectionTransport<C> {
    /// A transport without links.
    pub const fn new(connector: C) -> Self {
        Self { connector, links: Table::new() }
    }

    fn answer(&mut self, mut connection: C::Connection, hello: &[u8]) -> LinkId {
        connection.send(Message::Answer(hello.to_vec()));
        LinkId(self.links.insert(Link::new(connection, None)))
    }
}

impl<C: Connector> Transport for ConnectionTransport<C> {
    type Request = C::Connection;

    fn local_addr(&self) -> Addr {
        self.connector.local_addr()
    }

    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        let connection = self.connector.connect(to, hello)?;
        Ok(LinkId(self.links.insert(Link::new(connection, Some(*to)))))
    }

    fn accept(&mut self, mut request: C::Connection, hello: &[u8]) -> Result<LinkId> {
        self.connector.take_over(&mut request)?;
        Ok(self.answer(request, hello))
    }

    fn next_link(&self) -> LinkId {
        LinkId(self.links.next_number())
    }

    fn submit(&mut self, link: LinkId, header: &Header, payload: Payload<'_>, _: Urgency) -> Submitted {
        let Some(link) = self.links.get_mut(link.0) else { return Submitted::Broken };
        link.is_backed_up |= link.unread >= WINDOW;
        if link.is_backed_up {
            return Submitted::Full;
        }
        link.send_frame(header, Some(&payload));
        // The buffer stays where it is: it is the engine's again.
        Submitted::Done
    }

    fn poll(&mut self, events: &mut impl LinkEvents) -> bool {
        // Before anything is looked at: what arrives afterwards makes the descriptor readable
        // again.
        self.connector.wait_object().drain();
        let (mut any, mut is_more, mut ended) = (false, false, Vec::new());
        while let Some(ConnectRequest { mut request, hello, from, .. }) = self.connector.accept() {
            let id = LinkId(self.links.next_number());
            match events.handle_connect_request(id, &hello, &from, |name| *name == from) {
                Verdict::Accept(answer) => _ = self.answer(request, &answer),
                Verdict::Refuse(answer) => request.send(Message::Answer(answer)),
            }
            any = true;
        }
        for (number, link) in self.links.iter_mut() {
            match link.read(LinkId(number), events) {
                Ok(count) => (any, is_more) = (any | (count > 0), is_more | (count == MOST)),
                Err(why) => ended.push((number, why)),
            }
        }
        for (number, why) in ended {
            self.links.drop_entry(number);
            events.handle_link_down(LinkId(number), why);
            any = true;
        }
        if is_more {
            self.connector.wait_object().signal();
        }
        any
    }

    fn wait(&mut self, timeout: Duration) {
        self.connector.wait_object().ready(Some(timeout), &mut Vec::new());
    }

    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        let Some(link) = self.links.get_mut(link.0) else { return ShutdownState::Done };
        if let Some(last) = last {
            link.send_frame(last, None);
            link.connection.send(Message::Bye);
        }
        if link.connection.is_sent() { ShutdownState::Done } else { ShutdownState::Pending }
    }

    /// Every payload was copied, so there is none to give back.
    fn abort(&mut self, link: LinkId, _: &mut impl LinkEvents) {
        self.links.drop_entry(link.0);
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.connector.wait_object().descriptor())
    }

    fn now(&self) -> Instant {
        self.connector.wait_object().now()
    }

    fn random(&mut self) -> [u8; 16] {
        self.connector.random()
    }
}

impl<C: Connector> Listener for ConnectionTransport<C> {
    type Request = C::Connection;

    fn local_addr(&self) -> Addr {
        self.connector.local_addr()
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<C::Connection>>) -> bool {
        self.connector.wait_object().drain();
        let before = asked.len();
        asked.extend(core::iter::from_fn(|| self.connector.accept()));
        asked.len() > before
    }

    fn vouches(&self, from: &Addr, name: &Addr) -> bool {
        name == from
    }

    fn refuse(&mut self, mut request: C::Connection, hello: &[u8]) {
        request.send(Message::Answer(hello.to_vec()));
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.connector.wait_object().descriptor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Disposition, OfferAnswer, RecvTarget, Token};
    use crate::wire::frame::Frame;
    use ofi_memory::Buffer;
    use std::collections::VecDeque;

    const LINK: LinkId = LinkId(0);

    /// A connection that has received these messages, and then ends.
    #[derive(Debug, Default)]
    struct Script {
        received: VecDeque<Message>,
        sent: Vec<Message>,
        keeps: bool,
    }

    impl Connection for Script {
        fn send(&mut self, message: Message) {
            self.sent.push(message);
        }
        fn receive(&mut self) -> core::result::Result<Option<Message>, Down> {
            let end = || Down::new(Cause::Broken, Errno::ECONNRESET, "the script is over");
            self.received.pop_front().map(Some).ok_or_else(end)
        }
        fn is_sent(&self) -> bool {
            !self.keeps
        }
    }

    /// A connector for transports whose links a test makes.
    #[derive(Debug)]
    struct Unused;

    impl Connector for Unused {
        type Connection = Script;

        fn local_addr(&self) -> Addr {
            Addr::ANY
        }
        fn connect(&mut self, _: &Addr, _: &[u8]) -> Result<Script> {
            unreachable!("the test makes the links")
        }
        fn accept(&mut self) -> Option<ConnectRequest<Script>> {
            unreachable!("the test makes the links")
        }
        fn take_over(&mut self, _: &mut Script) -> Result<()> {
            unreachable!("the test makes the links")
        }
        fn wait_object(&self) -> &dyn WaitObject {
            unreachable!("nothing sleeps")
        }
        fn random(&mut self) -> [u8; 16] {
            unreachable!("nothing is random")
        }
    }

    /// Counts what a link reports.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Counts {
        answers: u32,
        frames: u32,
        rooms: u32,
    }

    impl LinkEvents for Counts {
        fn handle_connect_request(&mut self, _: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
            unreachable!("a link reports no connect request")
        }
        fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> core::result::Result<(), Down> {
            self.answers += 1;
            Ok(())
        }
        fn handle_frame(
            &mut self,
            _: LinkId,
            header: &[u8],
            payload: Incoming<'_>,
        ) -> core::result::Result<Disposition, Violation> {
            assert!(header == b"header" && matches!(payload, Incoming::Complete(b", payload")));
            self.frames += 1;
            Ok(Disposition::Done)
        }
        fn handle_send_room(&mut self, _: LinkId) {
            self.rooms += 1;
        }
        fn handle_offer(&mut self, _: LinkId, _: &[u8], _: usize) -> core::result::Result<OfferAnswer, Violation> {
            unreachable!("nothing is offered")
        }
        fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
        fn handle_recv_done(&mut self, _: LinkId, _: RecvTarget) -> core::result::Result<(), Violation> {
            unreachable!("no payload streams")
        }
        fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {
            unreachable!("no payload streams")
        }
        fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, _: Down) {
            unreachable!("no payload streams")
        }
        fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {
            unreachable!("no payload is kept")
        }
        fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {
            unreachable!("no payload is kept")
        }
        fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, _: Down) {
            unreachable!("no payload is kept")
        }
        fn handle_link_down(&mut self, _: LinkId, _: Down) {
            unreachable!("the transport reports the end")
        }
    }

    fn frame() -> Message {
        Message::Frame(b"header, payload".to_vec(), 6)
    }

    /// A link that reads these messages: what it reports, and how it ends.
    fn read(asked: bool, unread: u32, received: impl IntoIterator<Item = Message>) -> (Link<Script>, Counts, Down) {
        let connection = Script { received: received.into_iter().collect(), ..Script::default() };
        let mut link = Link::new(connection, asked.then_some(Addr::ANY));
        link.unread = unread;
        let mut counts = Counts::default();
        loop {
            if let Err(why) = link.read(LINK, &mut counts) {
                return (link, counts, why);
            }
        }
    }

    #[test]
    fn messages_out_of_turn_are_violations() {
        let answer = || Message::Answer(Vec::new());
        for (asked, messages) in [
            (true, vec![frame()]),
            (true, vec![answer(), answer()]),
            (false, vec![answer()]),
            (false, vec![Message::Frame(vec![0; 8], 9)]),
            (false, vec![Message::HalfRead]),
        ] {
            let (_, counts, why) = read(asked, WINDOW / 2 - 1, messages);
            assert_eq!((why.cause, counts.frames), (Cause::Violation, 0), "{why:?}");
        }
    }

    #[test]
    fn a_connection_that_ends_unanswered_fails_to_connect() {
        let (_, _, why) = read(true, 0, []);
        assert_eq!((why.cause, why.errno), (Cause::Connect, Errno::ECONNREFUSED));
        let (_, counts, why) = read(true, 0, [Message::Answer(Vec::new())]);
        assert_eq!((counts.answers, why.cause), (1, Cause::Broken));
        let (link, _, why) = read(false, 0, [Message::Bye, frame()]);
        assert_eq!((link.connection.received.len(), why.cause), (1, Cause::Broken), "nothing is read behind the end");
    }

    #[test]
    fn the_reader_reports_each_half_of_a_window() {
        let (link, counts, _) = read(false, 0, (0..2 * WINDOW).map(|_| frame()));
        assert_eq!(counts.frames, 2 * WINDOW);
        assert_eq!(link.connection.sent.len(), 4);
        assert!(link.connection.sent.iter().all(|message| matches!(message, Message::HalfRead)));
    }

    #[test]
    fn room_is_reported_once_and_only_if_a_frame_was_refused() {
        let mut link = Link::new(Script::default(), None);
        let mut counts = Counts::default();
        for refused in [false, true] {
            (link.unread, link.is_backed_up) = (WINDOW, refused);
            for _ in 0..2 {
                link.handle(LINK, Message::HalfRead, &mut counts).unwrap();
            }
            assert_eq!((counts.rooms, link.unread), (u32::from(refused), 0));
        }
    }
    #[test]
    fn a_shutdown_is_done_when_the_connection_keeps_nothing() {
        let mut transport = ConnectionTransport::new(Unused);
        let link = transport.answer(Script { keeps: true, ..Script::default() }, b"hello");
        let last = Frame::Ack { id: 1 }.encode();
        assert_eq!(transport.shutdown(link, Some(&last)), ShutdownState::Pending);
        assert_eq!(transport.shutdown(link, None), ShutdownState::Pending);
        let connection = &mut transport.links.get_mut(link.0).unwrap().connection;
        assert!(matches!(&connection.sent[..], [Message::Answer(_), Message::Frame(..), Message::Bye]));
        connection.keeps = false;
        assert_eq!(transport.shutdown(link, None), ShutdownState::Done);
    }
}
