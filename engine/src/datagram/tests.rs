use super::*;
use crate::completion::counter::CounterUnit;
use crate::completion::eq::{EventKind, Found, Owner};
use crate::progress::wait::Waiting;
use core::time::Duration;
use ofi_core::Instant;
use ofi_core::wait::WaitObject;
use ofi_sync::lock::Park;
use std::sync::Mutex;

/// Records the descriptors added; refuses more while `full`.
#[derive(Debug, Default)]
struct Refusing {
    full: AtomicBool,
    watched: Mutex<Vec<Descriptor>>,
}

impl WaitObject for Refusing {
    fn add(&self, fd: Descriptor, _key: u64) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::new(Errno::ENOSPC, "watch a descriptor"));
        }
        self.watched.lock().unwrap().push(fd);
        Ok(())
    }
    fn remove(&self, fd: Descriptor) {
        self.watched.lock().unwrap().retain(|other| *other != fd);
    }
    fn ready(&self, _timeout: Option<Duration>, _keys: &mut Vec<u64>) -> bool {
        false
    }
    fn signal(&self) {}
    fn drain(&self) {}
    fn set_timer(&self, _when: Option<Instant>) {}
    fn descriptor(&self) -> Descriptor {
        1
    }
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// Sends every packet and receives none.
struct Silent;

impl Datagrams for Silent {
    fn local_addr(&self) -> Addr {
        Addr::from(core::net::SocketAddr::from(([127, 0, 0, 1], 1)))
    }
    fn send(&mut self, _packet: &Buffer, _to: &Addr, _leaves: bool) -> Given {
        Given::Taken
    }
    fn receive(&mut self, _: &mut VecDeque<(Ticket, Buffer)>, _most: usize, _packets: &mut Vec<Packet>) {}
    fn join(&mut self, _group: &Addr, _ways: Ways) -> Result<Membership> {
        Err(Error::new(Errno::EADDRNOTAVAIL, "join a group"))
    }
    fn leave(&mut self, _group: &Addr, _ways: Ways) {}
    fn listen(&mut self, _on: bool) -> bool {
        false
    }
    fn descriptor(&self) -> Option<Descriptor> {
        Some(7)
    }
}

fn endpoint() -> Arc<DatagramEndpoint<Silent, Park>> {
    let (caps, limits) = (Caps::MSG | Caps::SEND | Caps::RECV, Limits::new(1000, 100));
    let config = Config { caps, limits, rx_size: 10, provider: "test" };
    DatagramEndpoint::new(Park::default(), config, None, Box::new(|_| Ok(Silent)), None)
}

#[test]
fn a_failed_call_may_be_repeated() {
    let ports: [Arc<Refusing>; 4] = Default::default();
    let watched = || ports.each_ref().map(|port| port.watched.lock().unwrap().len());
    let queue = |at: usize| Arc::new(CompletionQueue::new(Park::default(), 1, ports[at].clone(), Waiting::Never));
    let counter = Arc::new(Counter::new(Park::default(), CounterUnit::Operations, ports[2].clone(), Waiting::Never));
    let other = Arc::new(Counter::new(Park::default(), CounterUnit::Operations, ports[3].clone(), Waiting::Never));
    let (ep, av) = (endpoint(), Arc::new(AddressVector::new(1, false)));
    ep.bind_cq(&queue(0), BindFlags::TRANSMIT).unwrap();
    ep.bind_cq(&queue(1), BindFlags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ports[1].full.store(true, Ordering::Relaxed);
    assert_eq!(ep.enable().unwrap_err().errno(), Errno::ENOSPC);
    assert_eq!(watched(), [0, 0, 0, 0]);
    assert_eq!(ep.enable().unwrap_err().errno(), Errno::ENOSPC);
    ports[1].full.store(false, Ordering::Relaxed);
    ep.enable().unwrap();
    assert_eq!(watched(), [1, 1, 0, 0]);
    ports[2].full.store(true, Ordering::Relaxed);
    assert_eq!(ep.bind_counter(&counter, BindFlags::TRANSMIT).unwrap_err().errno(), Errno::ENOSPC);
    ports[2].full.store(false, Ordering::Relaxed);
    ep.bind_counter(&counter, BindFlags::TRANSMIT).unwrap();
    assert_eq!(watched(), [1, 1, 1, 0]);
    // The kind has a counter already: another one is refused and stays unbound.
    assert_eq!(ep.bind_counter(&other, BindFlags::TRANSMIT).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(watched(), [1, 1, 1, 0]);
    ep.close();
    assert_eq!(watched(), [0, 0, 0, 0]);
    assert_eq!((counter.users.count(), other.users.count(), av.users.count()), (0, 0, 0));
}

#[test]
fn a_group_that_was_not_joined_has_no_handle() {
    let (ep, av) = (endpoint(), Arc::new(AddressVector::new(1, false)));
    ep.bind_av(&av).unwrap();
    ep.bind_eq(&Arc::new(EventQueue::new(Arc::<Refusing>::default(), Waiting::Never))).unwrap();
    let group = Addr::from(core::net::SocketAddr::from(([239, 1, 1, 1], 1)));
    let joined = ep.join(group, Ways::BOTH, Owner(1), &mut |_| panic!("it was not joined"));
    assert_eq!(joined.unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    assert_eq!(av.find(&group), FiAddr::UNSPEC);
    ep.close();
}

/// Joins groups when the test lets it, and counts those that were left.
#[derive(Clone, Default)]
struct Slow {
    outcomes: Arc<Mutex<VecDeque<Joined>>>,
    left: Arc<Mutex<usize>>,
}

impl Datagrams for Slow {
    const AWAITS: bool = true;

    fn local_addr(&self) -> Addr {
        Silent.local_addr()
    }
    fn send(&mut self, _packet: &Buffer, _to: &Addr, _leaves: bool) -> Given {
        Given::Taken
    }
    fn receive(&mut self, _: &mut VecDeque<(Ticket, Buffer)>, _most: usize, _packets: &mut Vec<Packet>) {}
    fn join(&mut self, _group: &Addr, _ways: Ways) -> Result<Membership> {
        Ok(Membership::Awaited)
    }
    fn leave(&mut self, _group: &Addr, _ways: Ways) {
        *self.left.lock().unwrap() += 1;
    }
    fn next_joined(&mut self) -> Option<Joined> {
        self.outcomes.lock().unwrap().pop_front()
    }
    fn listen(&mut self, _on: bool) -> bool {
        false
    }
    fn attend(&mut self) -> bool {
        !self.outcomes.lock().unwrap().is_empty()
    }
    fn descriptor(&self) -> Option<Descriptor> {
        Some(7)
    }
}

/// The number of the oldest event's owner, and its error.
fn next_event(eq: &EventQueue) -> Option<(usize, Option<Errno>)> {
    let event = match eq.read(|_| false) {
        Found::Event(event) => event,
        Found::Error => eq.read_error().unwrap(),
        Found::Nothing => return None,
    };
    let errno = match event.kind {
        EventKind::Joined => None,
        EventKind::Failed { errno, .. } => Some(errno),
        other => panic!("{other:?}"),
    };
    Some((event.owner.0, errno))
}

#[test]
fn a_join_that_ends_later_is_reported_to_each_member_once() {
    let medium = Slow::default();
    let (outcomes, left) = (medium.outcomes.clone(), medium.left.clone());
    let ports: [Arc<Refusing>; 2] = Default::default();
    let watched = || ports.each_ref().map(|port| port.watched.lock().unwrap().len());
    let eqs = ports.each_ref().map(|port| Arc::new(EventQueue::new(port.clone(), Waiting::Never)));
    let (caps, limits) = (Caps::MSG | Caps::SEND | Caps::RECV, Limits::new(1000, 100));
    let config = Config { caps, limits, rx_size: 10, provider: "test" };
    let opener = Box::new(move |_| Ok(medium.clone()));
    let ep = DatagramEndpoint::<Slow, Park>::new(Park::default(), config, None, opener, None);
    ep.bind_av(&Arc::new(AddressVector::new(1, false))).unwrap();
    ep.bind_eq(&eqs[0]).unwrap();
    let group = |port: u16| Addr::from(core::net::SocketAddr::from(([239, 1, 1, 1], port)));
    let joined = |port, owner| ep.join(group(port), Ways::BOTH, Owner(owner), &mut |_| ());
    ports[0].full.store(true, Ordering::Relaxed);
    assert_eq!(joined(1, 1).unwrap_err().errno(), Errno::ENOSPC, "nothing would wake a reader of the queue");
    ports[0].full.store(false, Ordering::Relaxed);
    for (port, owner) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
        joined(port, owner).unwrap();
    }
    assert_eq!(next_event(&eqs[0]), None);
    // Another queue takes its place, and polls the endpoint from then on.
    assert_eq!(watched(), [1, 0]);
    ep.bind_eq(&eqs[1]).unwrap();
    assert_eq!(watched(), [0, 1]);
    ep.leave(&group(2), Ways::BOTH, FiAddr(1), Owner(4));
    let why = Down::new(Cause::Connect, Errno::ENETUNREACH, "no way");
    outcomes.lock().unwrap().push_back(Joined { group: group(2), failed: Some(why) });
    outcomes.lock().unwrap().push_back(Joined { group: group(1), failed: None });
    let events: Vec<_> = core::iter::from_fn(|| next_event(&eqs[1])).collect();
    assert_eq!(events, [(3, Some(Errno::ENETUNREACH)), (1, None), (2, None)]);
    outcomes.lock().unwrap().push_back(Joined { group: group(1), failed: None });
    assert_eq!(next_event(&eqs[1]), None);
    // The medium has given up the one that failed.
    assert_eq!(*left.lock().unwrap(), 1);
    ep.leave(&group(2), Ways::BOTH, FiAddr(1), Owner(3));
    ep.leave(&group(1), Ways::BOTH, FiAddr(0), Owner(1));
    assert_eq!(*left.lock().unwrap(), 2);
    ep.close();
    assert_eq!((watched(), eqs[0].users.count(), eqs[1].users.count()), ([0, 0], 0, 0));
}

/// A lock kind beside [`Park`].
#[derive(Clone, Copy)]
struct Other;

impl LockKind for Other {
    type Cell<T: Send> = Mutex<T>;
    type Guard<'a, T: Send + 'a> = std::sync::MutexGuard<'a, T>;
    const IS_SHARED: bool = true;

    fn cell<T: Send>(self, value: T) -> Mutex<T> {
        Mutex::new(value)
    }
    fn lock<T: Send>(cell: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
        cell.lock().unwrap()
    }
}

#[test]
fn an_object_of_another_lock_kind_is_of_another_domain() {
    fn refused(result: Result<()>) {
        assert_eq!(result.unwrap_err().errno(), Errno::EDOMAIN);
    }
    let ep: Arc<dyn crate::erased::EndpointControl> = endpoint();
    let port = Arc::new(Refusing::default());
    refused(ep.bind_cq(Arc::new(CompletionQueue::new(Other, 1, port.clone(), Waiting::Never)), BindFlags::TRANSMIT));
    refused(ep.clone().bind_counter(
        Arc::new(Counter::new(Other, CounterUnit::Operations, port.clone(), Waiting::Never)),
        BindFlags::TRANSMIT,
    ));
    ep.bind_cq(Arc::new(CompletionQueue::new(Park::default(), 1, port.clone(), Waiting::Never)), BindFlags::TRANSMIT)
        .unwrap();
    ep.bind_counter(
        Arc::new(Counter::new(Park::default(), CounterUnit::Operations, port, Waiting::Never)),
        BindFlags::TRANSMIT,
    )
    .unwrap();
}
