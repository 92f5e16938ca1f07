//! Two endpoints with each other's addresses, and the steps that most cases share.

use super::EndpointMedium;
use fastrand::Rng;
use ofi_core::{FiAddr, OpFlags};
use ofi_engine::transport::Transport;
use ofi_engine::wire::frame::MOST_EAGER;
use ofi_rig::{Finished, Message, Options, Receive, Side, expect, finish, until};

/// The longest inject, in bytes.
pub(super) const INJECT: usize = 4096;
/// A message that takes several data frames.
pub(super) const LONG: usize = (3 << 20) + 5;

/// Sizes around all limits: a cache line, a record, inject, eager messages.
/// Endpoints with the default account have an eager limit of [`MOST_EAGER`].
pub(super) fn sizes<T: Transport>() -> Vec<usize> {
    let inline = T::INLINE_MAX;
    let mut sizes = vec![0, 1, 8, inline, inline + 1, INJECT, INJECT + 1, MOST_EAGER, MOST_EAGER + 1, LONG];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The bytes of message `number`.
pub(super) fn content(number: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::with_seed(number).fill(&mut out);
    out
}

/// The part of a successful receive that the message fills.
#[track_caller]
pub(super) fn message_of(received: &Finished) -> &[u8] {
    let done = received.outcome.as_ref().unwrap_or_else(|failure| panic!("the receive failed: {failure:?}"));
    &received.bytes[..done.len]
}

/// Checks the bytes of a successful receive.
#[track_caller]
pub(super) fn assert_content(received: &Finished, number: u64, len: usize) {
    let bytes = message_of(received);
    assert_eq!(bytes.len(), len, "message {number}");
    assert!(bytes == content(number, len), "message {number} of {len} bytes is not what was sent");
}

/// Two endpoints: A sends, B receives.
pub(super) struct Pair<M: EndpointMedium> {
    pub(super) medium: M,
    pub(super) rng: Rng,
    pub(super) a: Side<M::Carrier>,
    pub(super) b: Side<M::Carrier>,
    pub(super) to_a: FiAddr,
    pub(super) to_b: FiAddr,
}

impl<M: EndpointMedium> Pair<M> {
    /// Two endpoints with a link between them.
    pub(super) fn new(seed: u64) -> Self {
        Self::with(seed, |_| ())
    }

    /// The same with the given options.
    pub(super) fn with(seed: u64, change: impl Fn(&mut Options)) -> Self {
        let mut pair = Self::unlinked(seed, change);
        pair.to_a = pair.b.know(pair.a.addr());
        // One after the other: two connections at once take longer. With FI_COMPLETION, in case the
        // queues are bound with FI_SELECTIVE_COMPLETION.
        let Self { medium, a, b, to_a, to_b, .. } = &mut pair;
        for back in [false, true] {
            let (from, to, handle) = if back { (&mut *b, &mut *a, *to_a) } else { (&mut *a, &mut *b, *to_b) };
            let receive = to.post_receive(Receive::new(8).flags(OpFlags::COMPLETION));
            let send = from.post(Message::new(handle, vec![1; 8]).flags(OpFlags::COMPLETION));
            expect(medium.watch(), &mut [from, to], "a first message", |sides| {
                sides[0].is_done(send) && sides[1].is_done(receive)
            });
        }
        pair
    }

    /// Two endpoints without a link. A has the address of B, but B does not have that of A.
    pub(super) fn unlinked(seed: u64, change: impl Fn(&mut Options)) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut medium = M::new(&mut rng);
        let [a, b] = [0, 1].map(|_| open(&mut medium, &mut rng, &change));
        let to_b = a.know(b.addr());
        Self { medium, rng, a, b, to_a: FiAddr::UNSPEC, to_b }
    }

    /// A third endpoint.
    pub(super) fn third(&mut self) -> Side<M::Carrier> {
        open(&mut self.medium, &mut self.rng, &|_| ())
    }

    /// Polls both until a condition holds.
    #[track_caller]
    pub(super) fn wait(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Side<M::Carrier>, &mut Side<M::Carrier>) -> bool,
    ) {
        expect(self.medium.watch(), &mut [&mut self.a, &mut self.b], what, |sides| {
            let [a, b] = sides else { return false };
            is_so(a, b)
        });
    }

    /// Polls both for some time, without a condition. In real time an event that must not happen
    /// may come later than this, so prefer [`Self::barrier`].
    pub(super) fn poll(&mut self) {
        let mut left = 100;
        until(self.medium.watch(), &mut [&mut self.a, &mut self.b], |_| {
            left -= 1;
            left == 0
        });
    }

    /// Polls A alone for some time.
    pub(super) fn poll_a(&mut self) {
        let mut left = 100;
        until(self.medium.watch(), &mut [&mut self.a], |_| {
            left -= 1;
            left == 0
        });
    }

    /// Waits for a send of A to succeed.
    #[track_caller]
    pub(super) fn sent(&mut self, context: usize) {
        self.wait("a send completes", |a, _| a.outcome(context).is_some());
        let done = self.a.take(context);
        let [Finished { outcome: Ok(done), .. }] = &done[..] else { panic!("the send failed: {done:?}") };
        assert!(done.flags.contains(OpFlags::SEND), "{done:?}");
    }

    /// Waits for the only completion of an operation of B.
    #[track_caller]
    pub(super) fn got(&mut self, context: usize) -> Finished {
        self.wait("a receive completes", |_, b| b.outcome(context).is_some());
        let mut done = self.b.take(context);
        assert_eq!(done.len(), 1, "{done:?}");
        done.remove(0)
    }

    /// Waits until B has everything that A has sent, and A has B's acknowledgments: sends an
    /// untagged message behind them, because links are ordered.
    #[track_caller]
    pub(super) fn barrier(&mut self) {
        let receive = self.b.post_receive(Receive::new(0));
        let send = self.a.post(Message::new(self.to_b, Vec::new()).flags(OpFlags::DELIVERY_COMPLETE));
        self.sent(send);
        self.got(receive);
    }

    /// The same with a tagged message.
    #[track_caller]
    pub(super) fn tagged_barrier(&mut self) {
        const MARK: u64 = u64::MAX / 3;
        let receive = self.b.receive(FiAddr::UNSPEC, MARK, 0);
        let message = Message::new(self.to_b, Vec::new()).tagged(MARK);
        let send = self.a.post(message.flags(OpFlags::DELIVERY_COMPLETE));
        self.sent(send);
        self.got(receive);
    }

    /// Sends a tagged message with the content of its number.
    pub(super) fn send(&mut self, tag: u64, number: u64, len: usize) -> usize {
        self.a.send(self.to_b, tag, content(number, len))
    }

    /// Checks that every operation completes once, and closes both.
    #[track_caller]
    pub(super) fn end(self) {
        self.end_with(Vec::new());
    }

    /// The same with further endpoints.
    #[track_caller]
    pub(super) fn end_with(mut self, mut others: Vec<Side<M::Carrier>>) {
        let mut sides = vec![&mut self.a, &mut self.b];
        sides.extend(&mut others);
        finish(self.medium.watch(), &mut sides);
        for side in [self.a, self.b].into_iter().chain(others) {
            self.medium.close(side);
        }
    }
}

fn open<M: EndpointMedium>(medium: &mut M, rng: &mut Rng, change: &impl Fn(&mut Options)) -> Side<M::Carrier> {
    let mut options = Options { provider: "conformance", ..Options::default() };
    rng.fill(&mut options.nonce);
    change(&mut options);
    medium.open(options, rng)
}
