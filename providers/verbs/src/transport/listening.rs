//! The same object as a [`Listener`]: its connections are half-open until another object takes them
//! over, or until their peer has the refusal.

use super::{Link, Pending, State, VerbsTransport, vouches};
use crate::device::Device;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{
    ConnectRequest, Disposition, Down, Incoming, LinkEvents, LinkId, Listener, OfferAnswer, RecvTarget, Token,
    Transport, Verdict,
};
use ofi_engine::wire::frame::Violation;
use ofi_memory::Buffer;

/// Rounds of a listener's poll in which something may arrive while it arms the descriptor.
const ROUNDS: usize = 4;

impl<D: Device> Listener for VerbsTransport<D> {
    type Request = Pending<D::Pair>;

    fn local_addr(&self) -> Addr {
        self.device.local_addr().into()
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Pending<D::Pair>>>) -> bool {
        self.pace.look = true;
        let mut any = self.progress(&mut NoEvents, Some(asked));
        // Nothing arms the descriptor of a listener later.
        for _ in 0..ROUNDS {
            if !self.device.arm() {
                return any;
            }
            self.pace.look = true;
            any |= self.progress(&mut NoEvents, Some(asked));
        }
        self.device.wake();
        any
    }

    fn vouches(&self, from: &Addr, name: &Addr) -> bool {
        vouches(from, name)
    }

    fn refuse(&mut self, request: Pending<D::Pair>, hello: &[u8]) {
        let Pending(mut conn) = request;
        let slot = self.next_slot();
        // If this fails, the peer finds the connection ended.
        if self.device.attach(slot, &mut conn.pair).is_ok() {
            let slot = self.insert(Link { conn, state: State::Silent, waits: false });
            self.refuse_link(slot, hello.to_vec());
            self.push(slot);
            self.device.wake();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        Transport::next_deadline(self)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.device.descriptor())
    }
}

/// A listener has no links that report events.
struct NoEvents;

impl LinkEvents for NoEvents {
    fn handle_connect_request(&mut self, _: LinkId, _: &[u8], _: &Addr, _: impl Fn(&Addr) -> bool) -> Verdict {
        Verdict::Refuse(Vec::new())
    }
    fn handle_connected(&mut self, _: LinkId, _: &[u8]) -> Result<(), Down> {
        Ok(())
    }
    fn handle_frame(&mut self, _: LinkId, _: &[u8], _: Incoming<'_>) -> Result<Disposition, Violation> {
        Ok(Disposition::Done)
    }
    fn handle_offer(&mut self, _: LinkId, _: &[u8], _: usize) -> Result<OfferAnswer, Violation> {
        Ok(OfferAnswer::Decline)
    }
    fn handle_recv_done(&mut self, _: LinkId, _: RecvTarget) -> Result<(), Violation> {
        Ok(())
    }
    fn handle_send_done(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_offer_declined(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_send_returned(&mut self, _: LinkId, _: Token, _: Buffer) {}
    fn handle_recv_retry(&mut self, _: LinkId, _: RecvTarget) {}
    fn handle_recv_failed(&mut self, _: LinkId, _: RecvTarget, _: Down) {}
    fn handle_send_failed(&mut self, _: LinkId, _: Token, _: Buffer, _: Down) {}
    fn handle_send_room(&mut self, _: LinkId) {}
    fn handle_link_down(&mut self, _: LinkId, _: Down) {}
}
