//! Two processes that exchange messages: one measures, the other echoes.

use ofi::Addr;
use ofi::{
    CompletionQueue, Domain, Endpoint, EndpointType, Errno, Error, Event, EventQueue, FiAddr, Hints, Info, Listener,
    Query, Version,
};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// How long either side waits for the other before it gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages in flight while bandwidth is measured.
const WINDOW: usize = 32;

/// The options of the echoing process.
#[derive(Debug, clap::Args)]
pub(crate) struct EchoOptions {
    /// The provider's full name
    #[arg(long)]
    provider: String,
    /// rdm or msg
    #[arg(long)]
    endpoint: String,
    /// Message sizes, round trips and streamed messages of each: size:trips:stream,…
    #[arg(long)]
    plan: String,
}

/// A step of the plan: the exchange of messages of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) size: usize,
    pub(crate) trips: usize,
    pub(crate) stream: usize,
}

/// Formats a plan as an argument.
pub(crate) fn plan_text(plan: &[Step]) -> String {
    plan.iter().map(|step| format!("{}:{}:{}", step.size, step.trips, step.stream)).collect::<Vec<_>>().join(",")
}

fn parse_plan(text: &str) -> Option<Vec<Step>> {
    text.split(',')
        .map(|step| {
            let mut parts = step.split(':').map(|part| part.parse::<usize>().ok());
            Some(Step { size: parts.next()??, trips: parts.next()??, stream: parts.next()?? })
        })
        .collect()
}

/// Results for one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) size: usize,
    /// Half round trips, microseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Megabytes per second, if a stream was sent.
    pub(crate) bandwidth: Option<f64>,
}

/// One side of a pair.
pub(crate) struct Side {
    ep: Endpoint,
    cq: CompletionQueue,
    peer: FiAddr,
    /// Receives that have been posted.
    posted: usize,
    /// Sends that have not completed.
    sending: usize,
    spare: Vec<Vec<u8>>,
    /// Messages are tagged.
    tagged: bool,
    /// Every received byte is verified.
    checked: bool,
}

/// The test pattern: byte `at` of the message with this number.
const fn pattern(number: u8, at: usize) -> u8 {
    at.to_le_bytes()[0].wrapping_mul(31).wrapping_add(number)
}

pub(crate) fn trouble(text: impl Into<String>) -> Error {
    Error::new(Errno::EOTHER, text.into())
}

/// Finds the entry of a provider and endpoint type, over loopback.
fn find(provider: &str, endpoint: &str) -> Result<Info, Error> {
    let mut hints = Hints::default();
    let mut ep = ofi::Info::default().ep;
    ep.kind = kind_named(endpoint);
    hints.ep = Some(ep);
    let mut fabric = ofi::Info::default().fabric;
    fabric.prov_name = Some(provider.to_owned());
    hints.fabric = Some(fabric);
    // IP providers use the loopback address; shm needs no address.
    let node = (provider != "shm").then(|| "127.0.0.1".to_owned());
    let query = Query { version: Version::API, source: node.is_some(), node, hints: Some(hints), ..Query::default() };
    let (infos, refusals) = ofi::discover(&query)?;
    let exact = |info: &Info| info.fabric.prov_name.as_deref() == Some(provider);
    infos.into_iter().find(exact).ok_or_else(|| trouble(refusals.to_string()))
}

/// The endpoint type with this short name.
pub(crate) fn kind_named(name: &str) -> EndpointType {
    match name {
        "msg" => EndpointType::MSG,
        "dgram" => EndpointType::DGRAM,
        _ => EndpointType::RDM,
    }
}

#[allow(clippy::disallowed_methods, reason = "a tool reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The echoing process: prints its address, reads the peer's (if connectionless), runs the plan.
pub(crate) fn echo(options: &EchoOptions) -> Result<bool, Error> {
    let plan = parse_plan(&options.plan).ok_or_else(|| trouble("invalid plan"))?;
    let info = find(&options.provider, &options.endpoint)?;
    let say = |addr: Addr| {
        let mut out = std::io::stdout();
        writeln!(out, "{addr}").and_then(|()| out.flush()).map_err(|error| Error::os(error, "say the address"))
    };
    let domain = Domain::open(&info)?;
    let cq = domain.completion_queue(256)?;
    if options.endpoint == "msg" {
        let events = EventQueue::new()?;
        let listener = Listener::listen(&info, &events)?;
        say(listener.local_addr()?)?;
        let Some(Event::Request(request)) = events.next(PATIENCE)? else {
            return Err(trouble("no connection request arrived in time"));
        };
        let ep = domain.endpoint(&request.info(), &cq, Some(&events))?;
        ep.accept(request)?;
        let Some(Event::Connected) = events.next(PATIENCE)? else {
            return Err(trouble("the connection was not established"));
        };
        follow(&mut Side::new(ep, cq, FiAddr(0), true), &plan)?;
    } else {
        let ep = domain.endpoint(&info, &cq, None)?;
        say(ep.local_addr()?)?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map_err(|error| Error::os(error, "read the peer's address"))?;
        let peer = ep.peer(line.trim().parse().map_err(|()| trouble("invalid peer address"))?);
        follow(&mut Side::new(ep, cq, peer, options.endpoint != "dgram"), &plan)?;
    }
    Ok(true)
}

fn follow(side: &mut Side, plan: &[Step]) -> Result<(), Error> {
    for step in plan {
        side.receive(step.size)?;
        for _ in 0..step.trips {
            side.take()?;
            side.receive(step.size)?;
            side.send(step.size)?;
        }
        (1..WINDOW).try_for_each(|_| side.receive(step.size))?;
        for _ in 0..step.stream {
            side.take()?;
            side.receive(step.size)?;
        }
        side.send(0)?;
        // Use up the remaining receives, which the peer fills: the next size may be larger.
        for _ in 0..side.posted {
            side.take()?;
        }
        side.send(0)?;
    }
    side.settle()
}

/// Connects to the echoing process at `addr`; for connectionless endpoints also returns the local
/// address, which the caller must send to it.
pub(crate) fn meet(provider: &str, endpoint: &str, addr: Addr) -> Result<(Side, Option<Addr>), Error> {
    let info = find(provider, endpoint)?;
    let domain = Domain::open(&info)?;
    let cq = domain.completion_queue(256)?;
    if endpoint == "msg" {
        let events = EventQueue::new()?;
        let ep = domain.endpoint(&info, &cq, Some(&events))?;
        ep.connect(addr)?;
        let Some(Event::Connected) = events.next(PATIENCE)? else {
            return Err(trouble("the connection was not established"));
        };
        return Ok((Side::new(ep, cq, FiAddr(0), true), None));
    }
    let ep = domain.endpoint(&info, &cq, None)?;
    let mine = ep.local_addr()?;
    let peer = ep.peer(addr);
    Ok((Side::new(ep, cq, peer, endpoint != "dgram"), Some(mine)))
}

/// Runs and measures one step of the plan.
pub(crate) fn measure(side: &mut Side, step: Step) -> Result<Measured, Error> {
    let mut trips = Vec::with_capacity(step.trips);
    side.receive(step.size)?;
    let warm_up = step.trips / 10;
    for trip in 0..step.trips {
        let start = now();
        side.send(step.size)?;
        side.take()?;
        if trip >= warm_up {
            trips.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        side.receive(step.size)?;
    }
    let start = now();
    for _ in 0..step.stream {
        side.send(step.size)?;
    }
    side.take()?;
    let seconds = start.elapsed().as_secs_f64();
    // Fill the receives that the peer still has posted, so that the next size finds none.
    (0..WINDOW).try_for_each(|_| side.send(0))?;
    side.receive(step.size)?;
    side.take()?;
    side.settle()?;
    trips.sort_by(f64::total_cmp);
    let at = |percent: usize| trips.get(trips.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0.0);
    let bandwidth = (step.stream > 0).then_some((step.size * step.stream) as f64 / seconds / 1e6);
    Ok(Measured { size: step.size, p50: at(50), p99: at(99), bandwidth })
}

impl Side {
    pub(crate) const fn new(ep: Endpoint, cq: CompletionQueue, peer: FiAddr, tagged: bool) -> Self {
        Self { ep, cq, peer, posted: 0, sending: 0, spare: Vec::new(), tagged, checked: false }
    }

    /// Sets whether every received byte is verified.
    pub(crate) const fn check(&mut self, on: bool) {
        self.checked = on;
    }

    fn buffer(&mut self, size: usize) -> Vec<u8> {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.resize(size, 0x5a);
        buf
    }

    /// Posts a receive; 0-byte messages fit as well.
    pub(crate) fn receive(&mut self, size: usize) -> Result<(), Error> {
        let buf = self.buffer(size);
        self.ep
            .receive(self.tagged.then_some((0, u64::MAX)), buf)
            .map_err(|(errno, _)| Error::new(errno, "post a receive"))?;
        self.posted += 1;
        Ok(())
    }

    pub(crate) fn send(&mut self, size: usize) -> Result<(), Error> {
        while self.sending >= WINDOW {
            self.step(false)?;
        }
        let mut buf = self.buffer(size);
        if self.checked {
            buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(0x5a, at));
        }
        loop {
            match self.ep.send(self.peer, self.tagged.then_some(1), buf) {
                Ok(()) => {
                    self.sending += 1;
                    return Ok(());
                }
                Err((Errno::AGAIN, back)) => {
                    buf = back;
                    self.step(false)?;
                }
                Err((errno, _)) => return Err(Error::new(errno, "send")),
            }
        }
    }

    /// Waits for a message.
    pub(crate) fn take(&mut self) -> Result<(), Error> {
        let before = self.posted;
        while self.posted == before {
            self.step(true)?;
        }
        Ok(())
    }

    /// Waits until every send has completed.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        while self.sending > 0 {
            self.step(true)?;
        }
        Ok(())
    }

    /// Handles one completion. If `must`, waits for it: spins for a while, then sleeps.
    fn step(&mut self, must: bool) -> Result<(), Error> {
        let mut empty = 0u32;
        loop {
            match self.cq.poll() {
                Some(Ok(done)) => {
                    if done.completion.flags.contains(ofi::OpFlags::RECV) {
                        self.posted -= 1;
                        let came = done.buf.get(..done.completion.len).unwrap_or_default();
                        if self.checked && came.iter().enumerate().any(|(at, byte)| *byte != pattern(0x5a, at)) {
                            return Err(trouble("a message is not what was sent"));
                        }
                    } else {
                        self.sending -= 1;
                    }
                    self.spare.push(done.buf);
                    return Ok(());
                }
                Some(Err(failed)) => {
                    return Err(Error::new(failed.failure.errno, failed.failure.text.to_string()));
                }
                None if !must => return Ok(()),
                None => empty += 1,
            }
            if empty > 20_000 {
                self.cq.wait(Some(PATIENCE)).map_err(|errno| Error::new(errno, "wait for the peer"))?;
                if empty > 20_002 {
                    // The state helps to find the cause.
                    let state = self.ep.describe();
                    return Err(Error::new(Errno::ETIMEDOUT, format!("wait for the peer while:\n{state}")));
                }
            }
        }
    }
}
