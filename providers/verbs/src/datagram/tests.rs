use super::*;
use ofi_core::OpFlags;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

const SLOTS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

/// A network of queue pairs, each with a number.
#[derive(Debug, Default)]
struct Lan {
    pairs: BTreeMap<u32, Wired>,
    /// The queue pairs that receive from groups.
    receivers: Vec<(SocketAddr, u32)>,
    /// The queue pairs that tell the way to them.
    known: BTreeMap<SocketAddr, u32>,
    now: Instant,
}

#[derive(Debug, Default)]
struct Wired {
    arrived: VecDeque<(u32, bool, Vec<u8>)>,
    news: Vec<News<FakeRoute>>,
}

/// To a queue pair, or else to a group.
#[derive(Debug)]
struct FakeRoute(Arc<u32>, Option<SocketAddr>);

#[derive(Debug)]
struct FakeDevice {
    lan: Arc<Mutex<Lan>>,
    addr: SocketAddr,
    number: u32,
    slots: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    /// Slots for sending that the device has; with `is_slow` it keeps them.
    sending: u16,
    is_slow: bool,
    /// Those that look for peers whose answers are to come.
    searches: Vec<SocketAddr>,
    /// Groups that are being joined.
    joins: Vec<SocketAddr>,
    answers: bool,
    /// It can receive from no more groups.
    is_full: bool,
}

impl FakeDevice {
    fn lan(&self) -> MutexGuard<'_, Lan> {
        self.lan.lock().unwrap()
    }
}

impl PacketDevice for FakeDevice {
    type Route = FakeRoute;
    const SENDS: u64 = SLOTS as u64;

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
    fn most(&self) -> usize {
        256
    }
    fn look_for(&mut self, to: SocketAddr) -> io::Result<()> {
        self.searches.push(to);
        Ok(())
    }
    fn forget(&mut self, to: &SocketAddr) {
        self.searches.retain(|other| other != to);
    }
    fn poll_news(&mut self, out: &mut Vec<News<FakeRoute>>) {
        out.append(&mut self.lan().pairs.get_mut(&self.number).unwrap().news);
        if !self.answers {
            return;
        }
        for group in core::mem::take(&mut self.joins) {
            out.push(News::Joined(group, FakeRoute(Arc::new(0), Some(group))));
        }
        for to in core::mem::take(&mut self.searches) {
            let found = self.lan().known.get(&to).copied();
            out.push(match found {
                Some(number) => News::Found(to, FakeRoute(Arc::new(number), None)),
                None => {
                    let why = Down::new(Cause::Connect, Errno::ECONNREFUSED, "no queue pair is there");
                    News::Lost { to, why, is_final: true }
                }
            });
        }
    }
    fn join(&mut self, group: SocketAddr) -> io::Result<()> {
        self.joins.push(group);
        Ok(())
    }
    fn receive_from(&mut self, group: &SocketAddr, on: bool) -> io::Result<()> {
        let (me, mut lan) = ((*group, self.number), self.lan());
        assert_eq!(lan.receivers.contains(&me), !on, "the state changes");
        if on && self.is_full {
            return Err(io::Error::from_raw_os_error(Errno::ENOMEM.raw()));
        }
        lan.receivers.retain(|other| *other != me);
        lan.receivers.extend(on.then_some(me));
        Ok(())
    }
    fn leave(&mut self, group: &SocketAddr) {
        self.joins.retain(|other| other != group);
        let me = (*group, self.number);
        self.lan().receivers.retain(|other| *other != me);
    }
    fn leads_to(route: &FakeRoute, pair: u32) -> bool {
        *route.0 == pair
    }
    fn send_slot(&mut self) -> Option<&mut [u8]> {
        if !self.is_slow {
            self.sending = 0;
        }
        (self.sending < SLOTS).then_some(&mut self.buffer[..])
    }
    fn send(&mut self, len: usize, route: &FakeRoute) -> io::Result<()> {
        self.sending += 1;
        let packet = (self.number, route.1.is_some(), self.buffer[..len].to_vec());
        let mut lan = self.lan();
        let to: Vec<u32> = match route.1 {
            Some(group) => lan.receivers.iter().filter(|other| other.0 == group).map(|other| other.1).collect(),
            None => vec![*route.0],
        };
        for number in to {
            if let Some(wired) = lan.pairs.get_mut(&number) {
                wired.arrived.push_back(packet.clone());
            }
        }
        Ok(())
    }
    fn next_arrived(&mut self) -> io::Result<Option<Arrived>> {
        let Some(slot) = self.slots.iter().position(Vec::is_empty) else { return Ok(None) };
        let next = self.lan().pairs.get_mut(&self.number).unwrap().arrived.pop_front();
        Ok(next.map(|(pair, group, bytes)| {
            self.slots[slot] = bytes;
            Arrived { slot: u16::try_from(slot).unwrap(), len: self.slots[slot].len(), pair, group }
        }))
    }
    fn received(&self, slot: u16) -> &[u8] {
        &self.slots[usize::from(slot)]
    }
    fn post_receive(&mut self, slot: u16) -> io::Result<()> {
        self.slots[usize::from(slot)].clear();
        Ok(())
    }
    fn listen(&mut self, on: bool) -> bool {
        on && !self.lan().pairs[&self.number].arrived.is_empty()
    }
    fn descriptor(&self) -> Descriptor {
        0
    }
    fn now(&self) -> Instant {
        self.lan().now
    }
}

fn addr(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 7000).into()
}

/// An endpoint on the network, which others find.
fn open(lan: &Arc<Mutex<Lan>>, host: u8, number: u32) -> VerbsDatagrams<FakeDevice> {
    let mut state = lan.lock().unwrap();
    state.pairs.insert(number, Wired::default());
    state.known.insert(addr(host), number);
    drop(state);
    let device = FakeDevice {
        lan: lan.clone(),
        addr: addr(host),
        number,
        slots: vec![Vec::new(); usize::from(SLOTS)],
        buffer: vec![0; 256],
        sending: 0,
        is_slow: false,
        searches: Vec::new(),
        joins: Vec::new(),
        answers: true,
        is_full: false,
    };
    VerbsDatagrams::new(device, PATIENCE)
}

fn say(from: &mut VerbsDatagrams<FakeDevice>, to: u8, text: &str) -> Given {
    from.send(&Buffer::Owned(text.as_bytes().to_vec()), &addr(to).into(), false)
}

/// The texts that have arrived, at most `most`, each with its sender.
fn heard(at: &mut VerbsDatagrams<FakeDevice>, most: usize) -> Vec<(SocketAddr, String)> {
    let ticket = || Ticket::new(0, OpFlags::RECV, true);
    let mut buffers: VecDeque<_> = (0..most).map(|_| (ticket(), Buffer::Owned(vec![0; 64]))).collect();
    let mut packets = Vec::new();
    at.receive(&mut buffers, most, &mut packets);
    let bytes = |(ticket, buffer): (Ticket, Buffer)| {
        ticket.discard();
        let mut out = Vec::new();
        buffer.append_to(0, 64, &mut out);
        out
    };
    let texts: Vec<Vec<u8>> = buffers.into_iter().map(bytes).collect();
    let text = |(packet, bytes): (&Packet, Vec<u8>)| {
        (packet.from.socket(), String::from_utf8(bytes[..packet.len.min(64)].to_vec()).unwrap())
    };
    packets.iter().zip(texts).map(text).collect()
}

fn texts(at: &mut VerbsDatagrams<FakeDevice>) -> Vec<String> {
    heard(at, 64).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn packets_for_a_peer_that_is_looked_for_arrive_in_order() {
    let lan = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    one.device.answers = false;
    for text in ["a", "b", "c", "d", "e", "f"] {
        assert!(matches!(say(&mut one, 2, text), Given::Taken));
    }
    assert_eq!(heard(&mut two, 9), []);
    // The device has room for four at a time, and keeps their slots for a while.
    (one.device.answers, one.device.is_slow) = (true, true);
    one.note_events();
    assert!(one.attend());
    assert!(one.is_busy(), "packets are due");
    assert!(matches!(say(&mut one, 2, "g"), Given::Full), "it comes behind those that wait");
    one.device.is_slow = false;
    one.attend();
    assert!(matches!(say(&mut one, 2, "g"), Given::Taken));
    let all = heard(&mut two, 64);
    assert_eq!(all[0].0, addr(1));
    assert_eq!(all.into_iter().map(|(_, text)| text).collect::<String>(), "abcdefg");
    assert!(!one.is_busy());
}

#[test]
fn a_packet_whose_completion_says_that_it_has_left_does_not_wait() {
    let lan = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    let mut say = |text: &[u8], answers| {
        one.device.answers = answers;
        one.send(&Buffer::Owned(text.to_vec()), &addr(2).into(), true)
    };
    assert!(matches!(say(b"early", false), Given::Full));
    assert!(matches!(say(b"known", true), Given::Taken));
    assert_eq!(texts(&mut two), ["known"]);
}

#[test]
fn more_packets_than_may_wait_are_told_to_try_again() {
    let lan = Arc::default();
    let mut one = open(&lan, 1, 11);
    one.device.answers = false;
    let taken = (0..100).take_while(|_| matches!(say(&mut one, 2, "x"), Given::Taken)).count();
    assert_eq!(taken, 16);
}

#[test]
fn packets_to_a_peer_that_is_not_there_are_dropped() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    for _ in 0..100 {
        assert!(matches!(say(&mut one, 2, "x"), Given::Taken));
    }
    // It is looked for again after a while.
    let mut two = open(&lan, 2, 22);
    assert!(matches!(say(&mut one, 2, "x"), Given::Taken));
    assert_eq!(heard(&mut two, 9), []);
    lan.lock().unwrap().now = Instant::default() + Duration::from_secs(1);
    assert!(matches!(say(&mut one, 2, "y"), Given::Taken));
    assert_eq!(texts(&mut two), ["y"]);
}

#[test]
fn a_peer_that_does_not_answer_in_time_is_no_longer_looked_for() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    one.device.answers = false;
    assert!(matches!(say(&mut one, 2, "x"), Given::Taken));
    lan.lock().unwrap().now = Instant::default() + PATIENCE;
    for _ in 0..100 {
        assert!(matches!(say(&mut one, 2, "x"), Given::Taken));
    }
    assert!(one.device.searches.is_empty());
}

#[test]
fn a_peer_that_has_begun_anew_is_found_again() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    say(&mut one, 2, "a");
    assert_eq!(texts(&mut two), ["a"]);
    drop(two);
    let mut two = open(&lan, 2, 23);
    say(&mut one, 2, "lost");
    assert_eq!(heard(&mut two, 9), []);
    // It speaks first, from another queue pair.
    say(&mut two, 1, "hello");
    assert_eq!(texts(&mut one), ["hello"]);
    say(&mut one, 2, "b");
    say(&mut one, 2, "c");
    assert_eq!(texts(&mut two), ["b", "c"]);
    // Or it keeps silent, and is asked for because the route is old, which serves meanwhile.
    drop(two);
    let mut two = open(&lan, 2, 24);
    lan.lock().unwrap().now = Instant::default() + Duration::from_secs(2);
    say(&mut one, 2, "d");
    one.note_events();
    one.attend();
    say(&mut one, 2, "e");
    assert_eq!(texts(&mut two).last().map(String::as_str), Some("e"));
}

#[test]
fn a_replaced_route_lasts_until_its_packets_have_left() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    let _two = open(&lan, 2, 22);
    say(&mut one, 2, "a");
    let Way::Route(FakeRoute(route, _)) = one.peers.way(&addr(2)) else { panic!("it was sent") };
    let route = Arc::downgrade(route);
    let replaced = one.peers.found(&addr(2), FakeRoute(Arc::new(22), None), Instant::default());
    one.retired.add(replaced);
    for _ in 0..SLOTS {
        assert_eq!(route.strong_count(), 1);
        say(&mut one, 2, "b");
    }
    say(&mut one, 2, "b");
    assert_eq!(route.strong_count(), 0);
}

#[test]
fn strange_packets_are_dropped_and_their_slots_used_again() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    for round in 0..3 * SLOTS {
        let strange = vec![b'x'; usize::from(round) % 30];
        lan.lock().unwrap().pairs.get_mut(&22).unwrap().arrived.push_back((5, false, strange));
    }
    say(&mut one, 2, "whole");
    assert_eq!(texts(&mut two), ["whole"]);
}

#[test]
fn a_packet_that_is_too_long_is_refused() {
    let lan = Arc::default();
    let mut one = open(&lan, 1, 11);
    let _two = open(&lan, 2, 22);
    assert!(matches!(say(&mut one, 2, &"x".repeat(256 - HEADER)), Given::Taken));
    let refused = say(&mut one, 2, &"x".repeat(257 - HEADER));
    assert!(matches!(refused, Given::Refused(why) if why.errno == Errno::EMSGSIZE));
}

#[test]
fn a_device_that_is_removed_refuses_everything() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    let gone = Down::new(Cause::Broken, Errno::ENODEV, "the device is removed");
    lan.lock().unwrap().pairs.get_mut(&11).unwrap().news.push(News::Broken(gone));
    one.note_events();
    one.attend();
    let refused = say(&mut one, 2, "x");
    assert!(matches!(refused, Given::Refused(why) if why.errno == Errno::ENODEV));
}

fn group(port: u16) -> Addr {
    Addr::from(SocketAddr::from(([239, 1, 2, 3], port)))
}

/// Sends to the group by the address with that port.
fn tell(from: &mut VerbsDatagrams<FakeDevice>, port: u16, text: &str) -> Given {
    from.send(&Buffer::Owned(text.as_bytes().to_vec()), &group(port), false)
}

/// How joins have ended.
fn outcomes(at: &mut VerbsDatagrams<FakeDevice>) -> Vec<(Addr, Option<Errno>)> {
    at.note_events();
    let any = at.attend();
    let outcomes: Vec<_> = core::iter::from_fn(|| at.next_joined()).collect();
    assert_eq!(any, !outcomes.is_empty(), "the engine asks only then");
    outcomes.into_iter().map(|joined| (joined.group, joined.failed.map(|why| why.errno))).collect()
}

#[test]
fn packets_to_a_group_that_is_joined_later_reach_its_receivers() {
    let lan = Arc::default();
    let (mut one, mut two, mut three) = (open(&lan, 1, 11), open(&lan, 2, 22), open(&lan, 3, 33));
    assert_eq!(two.join(&group(7), Ways::RECEIVE).unwrap(), Membership::Awaited);
    assert_eq!(three.join(&group(7), Ways::SEND).unwrap(), Membership::Awaited);
    assert_eq!(outcomes(&mut two), [(group(7), None)]);
    assert_eq!(outcomes(&mut three), [(group(7), None)]);
    one.device.answers = false;
    assert_eq!(one.join(&group(7), Ways::BOTH).unwrap(), Membership::Awaited);
    assert!(matches!(tell(&mut one, 7, "early"), Given::Taken));
    assert_eq!(texts(&mut two), [""; 0]);
    one.device.answers = true;
    assert_eq!(outcomes(&mut one), [(group(7), None)]);
    assert!(matches!(tell(&mut one, 8, "late"), Given::Taken), "a group has no ports");
    for receiver in [&mut two, &mut one] {
        assert_eq!(texts(receiver), ["early", "late"]);
    }
    assert_eq!(texts(&mut three), [""; 0], "it only sends");
}

#[test]
fn a_packet_says_whether_it_was_sent_to_a_group() {
    let lan = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    for end in [&mut one, &mut two] {
        end.join(&group(7), Ways::BOTH).unwrap();
        outcomes(end);
    }
    tell(&mut one, 7, "to all");
    say(&mut one, 2, "to one");
    let mut packets = Vec::new();
    let mut buffers: VecDeque<_> =
        (0..2).map(|_| (Ticket::new(0, OpFlags::RECV, true), Buffer::Owned(vec![0; 9]))).collect();
    two.receive(&mut buffers, 2, &mut packets);
    buffers.into_iter().for_each(|(ticket, _)| ticket.discard());
    assert_eq!(packets.iter().map(|packet| packet.group).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn memberships_of_a_group_end_independently() {
    let lan = Arc::default();
    let (mut one, mut two) = (open(&lan, 1, 11), open(&lan, 2, 22));
    one.join(&group(7), Ways::SEND).unwrap();
    outcomes(&mut one);
    two.join(&group(7), Ways::SEND).unwrap();
    two.join(&group(7), Ways::RECEIVE).unwrap();
    assert_eq!(outcomes(&mut two), [(group(7), None)]);
    assert_eq!(two.join(&group(7), Ways::RECEIVE).unwrap(), Membership::Begun);
    let mut hears = |two: &mut _| {
        tell(&mut one, 7, "x");
        texts(two).len()
    };
    assert_eq!(hears(&mut two), 1);
    two.leave(&group(7), Ways::RECEIVE);
    assert_eq!(hears(&mut two), 1);
    two.leave(&group(7), Ways::RECEIVE);
    assert_eq!(hears(&mut two), 0);
    assert_eq!(two.join(&group(7), Ways::BOTH).unwrap(), Membership::Begun);
    assert_eq!(hears(&mut two), 1);
    two.leave(&group(7), Ways::BOTH);
    two.leave(&group(7), Ways::SEND);
    let refused = tell(&mut two, 7, "y");
    assert!(matches!(refused, Given::Refused(why) if why.errno == Errno::EADDRNOTAVAIL));
}

#[test]
fn a_device_that_is_removed_joins_no_group() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    one.device.answers = false;
    one.join(&group(7), Ways::BOTH).unwrap();
    let gone = Down::new(Cause::Broken, Errno::ENODEV, "the device is removed");
    lan.lock().unwrap().pairs.get_mut(&11).unwrap().news.push(News::Broken(gone));
    assert_eq!(outcomes(&mut one), [(group(7), Some(Errno::ENODEV))]);
    assert_eq!(one.join(&group(7), Ways::BOTH).unwrap_err().errno(), Errno::ENODEV);
}

#[test]
fn a_group_that_cannot_be_joined_is_reported() {
    let lan: Arc<Mutex<Lan>> = Arc::default();
    let mut one = open(&lan, 1, 11);
    let strange = Addr::from(SocketAddr::from(([10, 0, 0, 2], 7)));
    assert_eq!(one.join(&strange, Ways::BOTH).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    let v6 = Addr::from("[ff02::1]:7".parse::<SocketAddr>().unwrap());
    assert_eq!(one.join(&v6, Ways::BOTH).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    // The network refuses.
    one.device.answers = false;
    one.join(&group(7), Ways::BOTH).unwrap();
    one.join(&group(8), Ways::BOTH).unwrap();
    let why = Down::new(Cause::Connect, Errno::ENETUNREACH, "no way");
    let news = News::Apart { group: groups::key(&group(7)), why };
    lan.lock().unwrap().pairs.get_mut(&11).unwrap().news.push(news);
    let unreachable = Some(Errno::ENETUNREACH);
    assert_eq!(outcomes(&mut one), [(group(7), unreachable), (group(8), unreachable)]);
    // The next try joins, but the device cannot receive from it.
    (one.device.answers, one.device.is_full) = (true, true);
    assert_eq!(one.join(&group(7), Ways::RECEIVE).unwrap(), Membership::Awaited);
    assert_eq!(outcomes(&mut one), [(group(7), Some(Errno::ENOMEM))]);
    one.device.is_full = false;
    assert_eq!(one.join(&group(7), Ways::RECEIVE).unwrap(), Membership::Awaited);
    assert_eq!(outcomes(&mut one), [(group(7), None)]);
}
