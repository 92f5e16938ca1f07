//! Two processes that exchange messages and access memory: one measures, the other echoes messages
//! and exposes memory.

use crate::one_sided::{self, Access};
use crate::side::{End, Link, PATIENCE, Side, WINDOW, failure, now, percentile};
use ofi::{
    Addr, DatagramEndpoint, Domain, EndpointType, Error, Fabric, Info, MsgEndpoint, MsgListener, RdmEndpoint, block_on,
};
use std::io::{BufRead, Write};

/// The options of the echoing process.
#[derive(Debug, clap::Args)]
pub(crate) struct EchoOptions {
    /// The provider's full name
    #[arg(long)]
    provider: String,
    /// rdm or msg
    #[arg(long)]
    endpoint: String,
    /// Operations, sizes, round trips and streamed operations of each:
    /// operation:size:trips:stream,…
    #[arg(long)]
    plan: String,
}

/// A step of the plan: messages or accesses of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// `None` for messages.
    pub(crate) access: Option<Access>,
    pub(crate) size: usize,
    pub(crate) trips: usize,
    pub(crate) stream: usize,
}

impl Step {
    /// The name of its operation.
    pub(crate) fn operation(&self) -> &'static str {
        self.access.map_or(MESSAGE, Access::name)
    }
}

const MESSAGE: &str = "message";

/// Formats a plan as an argument.
pub(crate) fn plan_text(plan: &[Step]) -> String {
    let one = |step: &Step| format!("{}:{}:{}:{}", step.operation(), step.size, step.trips, step.stream);
    plan.iter().map(one).collect::<Vec<_>>().join(",")
}

fn parse_plan(text: &str) -> Option<Vec<Step>> {
    text.split(',')
        .map(|step| {
            let (operation, numbers) = step.split_once(':')?;
            let access = if operation == MESSAGE { None } else { Some(Access::named(operation)?) };
            let mut parts = numbers.split(':').map(|part| part.parse::<usize>().ok());
            Some(Step { access, size: parts.next()??, trips: parts.next()??, stream: parts.next()?? })
        })
        .collect()
}

/// Results of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) step: Step,
    /// Microseconds: half round trips of messages, accesses from call to completion.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Megabytes per second, if there was a stream.
    pub(crate) bandwidth: Option<f64>,
}

/// Finds the entry of a provider and endpoint type, over loopback.
fn find(provider: &str, endpoint: &str) -> Result<Info, Error> {
    let query = Info::builder().provider(provider).endpoint(kind_named(endpoint));
    // IP providers use the loopback address; shm needs no address.
    let query = if provider == "shm" { query } else { query.node("127.0.0.1").source() };
    let exact = |info: &Info| info.fabric.prov_name.as_deref() == Some(provider);
    let offers = query.query()?;
    offers.into_iter().find(exact).ok_or_else(|| failure(format!("no provider has the name {provider}")))
}

/// The endpoint type with this short name.
pub(crate) fn kind_named(name: &str) -> EndpointType {
    match name {
        "msg" => EndpointType::MSG,
        "dgram" => EndpointType::DGRAM,
        _ => EndpointType::RDM,
    }
}

/// The echoing process: prints its address, reads the peer's (if connectionless), runs the plan.
pub(crate) fn echo(options: &EchoOptions) -> Result<bool, Error> {
    let plan = parse_plan(&options.plan).ok_or_else(|| failure("invalid plan"))?;
    let info = find(&options.provider, &options.endpoint)?;
    let print_addr = |addr: Addr| {
        let mut out = std::io::stdout();
        writeln!(out, "{addr}").and_then(|()| out.flush()).map_err(|error| Error::os(error, "print the address"))
    };
    let fabric = Fabric::open(&info)?;
    let domain = fabric.domain(&info)?;
    let end = if options.endpoint == "msg" {
        let listener = MsgListener::listen(&fabric, &info)?;
        print_addr(listener.local_addr()?)?;
        End::Msg(accept(&listener, &domain)?)
    } else {
        open(&domain, &info, |mine| {
            print_addr(mine)?;
            let mut line = String::new();
            std::io::stdin()
                .lock()
                .read_line(&mut line)
                .map_err(|error| Error::os(error, "read the peer's address"))?;
            line.trim().parse().map_err(|()| failure("invalid peer address"))
        })?
    };
    let link = Link { domain, end };
    follow(&mut Side::new(&link, true), &plan)?;
    Ok(true)
}

/// Accepts a connection, at the latest when the patience ends.
pub(crate) fn accept(listener: &MsgListener, domain: &Domain) -> Result<MsgEndpoint, Error> {
    block_on(async { listener.request_within(PATIENCE).await?.accept(domain).await })
}

/// Opens an endpoint without connection, whose peer is what `meet` returns for its own address.
pub(crate) fn open(domain: &Domain, info: &Info, meet: impl FnOnce(Addr) -> Result<Addr, Error>) -> Result<End, Error> {
    if info.ep.kind == EndpointType::DGRAM {
        let ep = DatagramEndpoint::open(domain, info)?;
        let peer = ep.peer(meet(ep.local_addr()?)?)?;
        return Ok(End::Datagram(ep, peer));
    }
    let ep = RdmEndpoint::open(domain, info)?;
    let peer = ep.peer(meet(ep.local_addr()?)?)?;
    Ok(End::Rdm(ep, peer))
}

fn follow(side: &mut Side<'_>, plan: &[Step]) -> Result<(), Error> {
    for step in plan {
        if let Some(access) = step.access {
            one_sided::expose(side, access, step.size, step.trips + step.stream)?;
            continue;
        }
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
        side.take_all()?;
        side.send(0)?;
    }
    side.settle()
}

/// Connects to the echoing process at `addr`; for connectionless endpoints also returns the local
/// address, which the caller must send to it.
pub(crate) fn meet(provider: &str, endpoint: &str, addr: Addr) -> Result<(Link, Option<Addr>), Error> {
    let info = find(provider, endpoint)?;
    let domain = Fabric::open(&info)?.domain(&info)?;
    if endpoint == "msg" {
        let end = End::Msg(block_on(MsgEndpoint::connect(&domain, &info, addr))?);
        return Ok((Link { domain, end }, None));
    }
    let mut mine = None;
    let end = open(&domain, &info, |own| {
        mine = Some(own);
        Ok(addr)
    })?;
    Ok((Link { domain, end }, mine))
}

/// Runs and measures one step of the plan.
pub(crate) fn measure(side: &mut Side<'_>, step: Step) -> Result<Measured, Error> {
    if let Some(access) = step.access {
        let (times, seconds) = one_sided::measure(side, access, step.size, (step.trips / 10, step.trips, step.stream))?;
        return Ok(measured(step, times, seconds));
    }
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
    Ok(measured(step, trips, seconds))
}

/// Summarizes a step from the times of its operations and of its stream.
fn measured(step: Step, mut times: Vec<f64>, seconds: f64) -> Measured {
    times.sort_by(f64::total_cmp);
    let bandwidth = (step.stream > 0).then_some((step.size * step.stream) as f64 / seconds / 1e6);
    Measured { step, p50: percentile(&times, 50), p99: percentile(&times, 99), bandwidth }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let message = Step { access: None, size: 8, trips: 20, stream: 30 };
        let plan = [message, Step { access: Some(Access::FetchAdd), ..message }];
        let text = plan_text(&plan);
        assert_eq!(text, "message:8:20:30,fetch-add:8:20:30");
        assert_eq!(parse_plan(&text).map(|plan| plan_text(&plan)), Some(text));
        assert!(parse_plan("peek:8:20:30").is_none() && parse_plan("write:8:20").is_none());
    }
}
