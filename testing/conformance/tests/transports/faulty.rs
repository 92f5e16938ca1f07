//! Tests of the suite itself: adds one fault to a correct transport; some case must detect it.

use crate::tcp::Simulated;
use fastrand::Rng;
use libtest_mimic::Trial;
use ofi_conformance::{Medium, Nowhere, first_failure};
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Cause, Errno, Instant};
use ofi_engine::transport::{
    ControlSubmitted, Disposition, Down, Flush, Incoming, LinkEvents, LinkId, OfferAnswer, Payload, RecvTarget,
    ShutdownState, Submitted, Token, Transport, Urgency, Verdict,
};
use ofi_engine::wire::frame::{Header, Violation};
use ofi_memory::Buffer;
use std::time::Duration;

/// The cases that fail without the fault.
const KNOWN: &[&str] = &["a_poll_that_gives_a_payload_back_returns_true"];

type Good = <Simulated as Medium>::Carrier;

const FRAME_LOST: u8 = 0;
const FRAME_TWICE: u8 = 1;
const BYTE_CHANGED: u8 = 2;
const SENT_FORGOTTEN: u8 = 3;
const SENT_TWICE: u8 = 4;
const RETURNED_FORGOTTEN: u8 = 5;
const TARGET_FORGOTTEN: u8 = 6;
const DOWN_FORGOTTEN: u8 = 7;
const DOWN_TWICE: u8 = 8;
const DOWN_AFTER_ABORT: u8 = 9;
const ROOM_FORGOTTEN: u8 = 10;
const ROOM_UNASKED: u8 = 11;
const NO_BACK_PRESSURE: u8 = 12;
const FLUSH_HOLDS: u8 = 13;
const VIOLATION_IGNORED: u8 = 14;
const DEAF: u8 = 15;
const SHUTDOWN_CUTS: u8 = 16;
const INJECT_KEPT: u8 = 17;
const EARLY_DOWN: u8 = 18;
const ARM_FORGOTTEN: u8 = 19;
const NOTHING: u8 = 20;

/// The simulated network, whose transports have fault number `F`.
#[derive(Debug)]
struct FaultyMedium<const F: u8>(Simulated);

impl<const F: u8> Medium for FaultyMedium<F> {
    type Carrier = Faulty<F>;
    type Listener = <Simulated as Medium>::Listener;

    const NAME: &'static str = "faulty";
    const SCRIPTS: u64 = 200;
    const WATCHDOG: Duration = Duration::from_millis(500);

    fn new(rng: &mut Rng) -> Self {
        Self(Simulated::new(rng))
    }
    fn open(&mut self, rng: &mut Rng) -> Faulty<F> {
        Faulty { inner: self.0.open(rng), count: 0, aborted: None, sent_on: None }
    }
    fn listen(&mut self) -> Option<Self::Listener> {
        self.0.listen()
    }
    fn open_connected(&mut self) -> Faulty<F> {
        Faulty { inner: self.0.open_connected(), count: 0, aborted: None, sent_on: None }
    }
    fn is_readable(&self, transport: &Faulty<F>) -> bool {
        F != DEAF && self.0.is_readable(&transport.inner)
    }
    fn nowhere(&mut self) -> Option<Nowhere> {
        self.0.nowhere()
    }
    fn break_links(&self) {
        self.0.break_links();
    }
    fn disturb(&self, rng: &mut Rng) {
        self.0.disturb(rng);
    }
    fn calm(&self) {
        self.0.calm();
    }
}

/// A transport with a fault.
#[derive(Debug)]
struct Faulty<const F: u8> {
    inner: Good,
    /// Counts the occasions for the fault, which strikes every eighth time.
    count: u32,
    aborted: Option<LinkId>,
    /// A link for which the next poll reports room although it was not backed up.
    sent_on: Option<LinkId>,
}

/// Changes events before the engine gets them.
struct Events<'a, E, const F: u8> {
    to: &'a mut E,
    count: &'a mut u32,
}

impl<E, const F: u8> Events<'_, E, F> {
    /// True every eighth time that fault `which` could happen.
    fn strikes(&mut self, which: u8) -> bool {
        *self.count += u32::from(F == which);
        F == which && self.count.is_multiple_of(8)
    }
}

fn reason() -> Down {
    Down::new(Cause::Broken, Errno::ECONNRESET, "a fault")
}

impl<E: LinkEvents, const F: u8> LinkEvents for Events<'_, E, F> {
    fn handle_connect_request(
        &mut self,
        link: LinkId,
        hello: &[u8],
        from: &Addr,
        vouches: impl Fn(&Addr) -> bool,
    ) -> Verdict {
        self.to.handle_connect_request(link, hello, from, vouches)
    }
    fn handle_connected(&mut self, link: LinkId, hello: &[u8]) -> Result<(), Down> {
        self.to.handle_connected(link, hello)
    }
    fn handle_frame(&mut self, link: LinkId, header: &[u8], payload: Incoming<'_>) -> Result<Disposition, Violation> {
        if self.strikes(FRAME_LOST) {
            return Ok(Disposition::Done);
        }
        if let Incoming::Complete(bytes) = payload
            && !bytes.is_empty()
            && self.strikes(BYTE_CHANGED)
        {
            let mut bytes = bytes.to_vec();
            bytes[0] ^= 1;
            return self.to.handle_frame(link, header, Incoming::Complete(&bytes));
        }
        if matches!(payload, Incoming::Complete(_)) && self.strikes(FRAME_TWICE) {
            self.to.handle_frame(link, header, payload)?;
        }
        let answer = self.to.handle_frame(link, header, payload);
        if F == VIOLATION_IGNORED { answer.or(Ok(Disposition::Done)) } else { answer }
    }
    fn handle_offer(&mut self, link: LinkId, header: &[u8], len: usize) -> Result<OfferAnswer, Violation> {
        self.to.handle_offer(link, header, len)
    }
    fn handle_offer_declined(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        self.to.handle_offer_declined(link, token, buffer);
    }
    fn handle_recv_done(&mut self, link: LinkId, target: RecvTarget) -> Result<(), Violation> {
        if self.strikes(TARGET_FORGOTTEN) { Ok(()) } else { self.to.handle_recv_done(link, target) }
    }
    fn handle_send_done(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        if self.strikes(SENT_FORGOTTEN) {
            return;
        }
        let again = self.strikes(SENT_TWICE).then(|| buffer.to_owned_copy());
        self.to.handle_send_done(link, token, buffer);
        if let Some(again) = again {
            self.to.handle_send_done(link, token, again);
        }
    }
    fn handle_send_returned(&mut self, link: LinkId, token: Token, buffer: Buffer) {
        if F != RETURNED_FORGOTTEN {
            self.to.handle_send_returned(link, token, buffer);
        }
    }
    fn handle_recv_retry(&mut self, link: LinkId, target: RecvTarget) {
        self.to.handle_recv_retry(link, target);
    }
    fn handle_recv_failed(&mut self, link: LinkId, target: RecvTarget, why: Down) {
        self.to.handle_recv_failed(link, target, why);
    }
    fn handle_send_failed(&mut self, link: LinkId, token: Token, buffer: Buffer, why: Down) {
        self.to.handle_send_failed(link, token, buffer, why);
    }
    fn handle_send_room(&mut self, link: LinkId) {
        if F != ROOM_FORGOTTEN {
            self.to.handle_send_room(link);
        }
    }
    fn handle_link_down(&mut self, link: LinkId, why: Down) {
        if F == DOWN_FORGOTTEN {
            return;
        }
        self.to.handle_link_down(link, why.clone());
        if F == DOWN_TWICE {
            self.to.handle_link_down(link, why);
        }
    }
}

impl<const F: u8> Transport for Faulty<F> {
    type Request = <Good as Transport>::Request;
    const POLLED: bool = Good::POLLED;
    const ARMED: bool = Good::ARMED;
    const INLINE_MAX: usize = Good::INLINE_MAX;

    fn local_addr(&self) -> Addr {
        self.inner.local_addr()
    }
    fn connect(&mut self, to: &Addr, hello: &[u8]) -> Result<LinkId> {
        self.inner.connect(to, hello)
    }
    fn accept(&mut self, request: Self::Request, hello: &[u8]) -> Result<LinkId> {
        self.inner.accept(request, hello)
    }
    fn next_link(&self) -> LinkId {
        self.inner.next_link()
    }
    fn submit(&mut self, link: LinkId, header: &Header, mut payload: Payload<'_>, urgency: Urgency) -> Submitted {
        payload.inject &= F != INJECT_KEPT;
        match self.inner.submit(link, header, payload, urgency) {
            // It accepts a payload that it will never send.
            Submitted::Full if F == NO_BACK_PRESSURE => Submitted::Done,
            Submitted::Done if F == ROOM_UNASKED => {
                self.sent_on = Some(link);
                Submitted::Done
            }
            submitted => submitted,
        }
    }
    fn submit_control(&mut self, link: LinkId, header: &Header, urgency: Urgency) -> ControlSubmitted {
        self.inner.submit_control(link, header, urgency)
    }
    fn poll(&mut self, to: &mut impl LinkEvents) -> bool {
        if let Some(link) = self.aborted.take() {
            to.handle_link_down(link, reason());
        }
        if let Some(link) = self.sent_on.take() {
            to.handle_send_room(link);
        }
        self.inner.poll(&mut Events::<_, F> { to, count: &mut self.count })
    }
    fn flush(&mut self, how: Flush, to: &mut impl LinkEvents) {
        let how = if F == FLUSH_HOLDS { Flush::ByRule } else { how };
        self.inner.flush(how, &mut Events::<_, F> { to, count: &mut self.count });
    }
    fn wait(&mut self, timeout: Duration) {
        self.inner.wait(timeout);
    }
    fn shutdown(&mut self, link: LinkId, last: Option<&Header>) -> ShutdownState {
        if F == SHUTDOWN_CUTS {
            self.inner.abort(link, &mut IgnoreEvents);
            self.aborted = Some(link);
            return ShutdownState::Done;
        }
        let state = self.inner.shutdown(link, last);
        if F == EARLY_DOWN { ShutdownState::Done } else { state }
    }
    fn abort(&mut self, link: LinkId, to: &mut impl LinkEvents) {
        self.sent_on = None;
        self.inner.abort(link, &mut Events::<_, F> { to, count: &mut self.count });
        self.aborted = (F == DOWN_AFTER_ABORT).then_some(link);
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }
    fn is_busy(&self) -> bool {
        self.inner.is_busy()
    }
    fn descriptor(&self) -> Option<Descriptor> {
        self.inner.descriptor()
    }
    fn announce(&mut self) -> bool {
        self.inner.announce()
    }
    fn order(&self) {
        self.inner.order();
    }
    fn arm(&mut self) -> bool {
        F != ARM_FORGOTTEN && self.inner.arm()
    }
    fn note_events(&mut self) {
        self.inner.note_events();
    }
    fn disarm(&mut self) {
        self.inner.disarm();
    }
    fn now(&self) -> Instant {
        self.inner.now()
    }
    fn random(&mut self) -> [u8; 16] {
        self.inner.random()
    }
}

/// Takes events that the fault hides.
struct IgnoreEvents;

impl LinkEvents for IgnoreEvents {
    fn handle_connect_request(&mut self, _: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        Verdict::Refuse(Vec::new())
    }
    fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> Result<(), Down> {
        Err(reason())
    }
    fn handle_frame(&mut self, _: LinkId, _: &[u8], _: Incoming<'_>) -> Result<Disposition, Violation> {
        Ok(Disposition::Done)
    }
    fn handle_offer(&mut self, _: LinkId, _: &[u8], _: usize) -> Result<OfferAnswer, Violation> {
        Ok(OfferAnswer::Decline)
    }
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_done(&mut self, _: LinkId, _: RecvTarget) -> Result<(), Violation> {
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {}
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, _: Down) {}
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, _: Down) {}
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, _: LinkId, _: Down) {}
}

fn trial<const F: u8>(fault: &str) -> Trial {
    let fault = fault.to_owned();
    Trial::test(format!("suite::detects {fault}"), move || match first_failure::<FaultyMedium<F>>(KNOWN) {
        Some(case) => {
            println!("{case} detects {fault}");
            Ok(())
        }
        None => Err("every case passes with this fault".into()),
    })
}

/// Without a fault nothing is detected: otherwise the other rows would show nothing.
fn without_fault() -> Trial {
    let run = || match first_failure::<FaultyMedium<NOTHING>>(KNOWN) {
        Some(case) => Err(format!("{case} fails without a fault").into()),
        None => Ok(()),
    };
    Trial::test("suite::detects nothing without a fault", run)
}

/// A row for each fault.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        without_fault(),
        trial::<ARM_FORGOTTEN>("a descriptor that is not armed"),
        trial::<FRAME_LOST>("a lost frame"),
        trial::<FRAME_TWICE>("a frame that arrives twice"),
        trial::<BYTE_CHANGED>("a changed byte"),
        trial::<SENT_FORGOTTEN>("a sent payload that is not returned"),
        trial::<SENT_TWICE>("a payload that is returned twice"),
        trial::<RETURNED_FORGOTTEN>("a payload that is neither sent nor returned"),
        trial::<TARGET_FORGOTTEN>("a receive buffer that is not returned"),
        trial::<DOWN_FORGOTTEN>("an end that is not reported"),
        trial::<DOWN_TWICE>("an end that is reported twice"),
        trial::<DOWN_AFTER_ABORT>("an end that is reported after an abort"),
        trial::<ROOM_FORGOTTEN>("room that is not reported"),
        trial::<ROOM_UNASKED>("room reported for a link that was not backed up"),
        trial::<NO_BACK_PRESSURE>("no back-pressure"),
        trial::<FLUSH_HOLDS>("a flush that holds frames back"),
        trial::<VIOLATION_IGNORED>("a violation that is ignored"),
        trial::<DEAF>("a descriptor that is never readable"),
        trial::<SHUTDOWN_CUTS>("a shutdown that cuts the link"),
        trial::<INJECT_KEPT>("an injected payload that is kept"),
        trial::<EARLY_DOWN>("a shutdown that is done too early"),
    ]
}
