//! `fi_pingpong`: two processes on two machines, one message at a time.

use crate::pair::{Side, kind_named, now, trouble};
use ofi::{
    Addr, AddrFormat, CompletionQueue, Domain, EndpointType, Error, Event, EventQueue, FiAddr, Hints, Info, Listener,
    Query, Version,
};
use serde::Serialize;
use socket2::{Domain as Family, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
#[allow(clippy::disallowed_types, reason = "the tool's own talk is not the library's traffic")]
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The default port of the control connection, as in libfabric's tool.
const PORT: u16 = 47_592;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum length of a control line, in bytes.
const LINE: u64 = 4096;
/// The first control line of both sides.
const GREETING: &str = "ofi fi_pingpong 1";

/// Measures latency and bandwidth of messages between two machines: without an address it waits for
/// the other side, with one it connects to it. Options that change the messages must be the same on
/// both sides.
#[derive(Debug, clap::Parser)]
#[command(name = "fi_pingpong", version, disable_version_flag = true)]
pub struct Options {
    /// Local control port (default: 47592 to wait on, any to connect from)
    #[arg(short = 'B', value_name = "SRC_PORT")]
    source_port: Option<u16>,
    /// Control port to connect to
    #[arg(short = 'P', value_name = "DST_PORT", default_value_t = PORT)]
    port: u16,
    /// Only this domain
    #[arg(short = 'd', value_name = "DOMAIN")]
    domain: Option<String>,
    /// Only this provider
    #[arg(short = 'p', value_name = "PROVIDER")]
    provider: Option<String>,
    /// Endpoint type: msg, rdm or dgram
    #[arg(short = 'e', value_name = "EP_TYPE", default_value = "dgram", value_parser = ["msg", "rdm", "dgram"])]
    endpoint: String,
    /// Messages of each size in each direction
    #[arg(short = 'I', value_name = "NUMBER", default_value_t = 10)]
    iterations: usize,
    /// Message size in bytes, or all
    #[arg(short = 'S', value_name = "SIZE", default_value = "all")]
    size: String,
    /// Verifies every received byte
    #[arg(short = 'c')]
    check: bool,
    /// Message type: msg or tagged
    #[arg(short = 'm', value_name = "MODE", default_value = "msg", value_parser = ["msg", "tagged"])]
    mode: String,
    /// Prints the chosen provider, endpoint type, domain and addresses
    #[arg(short = 'v')]
    verbose: bool,
    /// Listens on IPv6 addresses
    #[arg(short = '6')]
    six: bool,
    /// Messages in each direction before the measurement
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    warm_up: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Name or address of the other side
    #[arg(value_name = "SRV_ADDR")]
    server: Option<String>,
}

/// The result for one message size.
#[derive(Debug, Serialize)]
struct Row {
    bytes: usize,
    sent: usize,
    acknowledged: usize,
    seconds: f64,
    mb_per_second: f64,
    us_per_transfer: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The control connection beside the measured one.
#[allow(clippy::disallowed_types, reason = "the tool's own talk is not the library's traffic")]
struct Control {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

#[allow(clippy::disallowed_types, reason = "the tool's own talk is not the library's traffic")]
impl Control {
    fn new(stream: TcpStream) -> Result<Self, Error> {
        let fail = |error| Error::os(error, "set up the control connection");
        stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
        let lines = BufReader::new(stream.try_clone().map_err(fail)?);
        Ok(Self { stream, lines })
    }

    fn wait(options: &Options) -> Result<Self, Error> {
        let any: IpAddr = if options.six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let addr = SocketAddr::new(any, options.source_port.unwrap_or(PORT));
        let listener = TcpListener::bind(addr).map_err(|error| Error::os(error, format!("wait at {addr}")))?;
        let (stream, _) = listener.accept().map_err(|error| Error::os(error, "wait for the other side"))?;
        Self::new(stream)
    }

    fn connect(server: &str, port: u16, from: Option<u16>) -> Result<Self, Error> {
        let stream = match from {
            Some(from) => Self::connect_from(server, port, from),
            None => TcpStream::connect((server, port)),
        };
        Self::new(stream.map_err(|error| Error::os(error, format!("connect to {server} port {port}")))?)
    }

    fn connect_from(server: &str, port: u16, from: u16) -> std::io::Result<TcpStream> {
        let mut failed = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for to in (server, port).to_socket_addrs()? {
            let any: IpAddr = if to.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let socket = Socket::new(Family::for_address(to), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::new(any, from).into())?;
            match socket.connect(&to.into()) {
                Ok(()) => return Ok(socket.into()),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn say(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.stream, "{line}").map_err(|error| Error::os(error, "write to the control connection"))
    }

    fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match (&mut self.lines).take(LINE).read_line(&mut line) {
            Ok(0) => Err(trouble("the other side closed the control connection")),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(Error::os(error, "read from the control connection")),
        }
    }

    fn addresses(&self) -> Result<(SocketAddr, SocketAddr), Error> {
        let fail = |error| Error::os(error, "ask for the addresses of the control connection");
        Ok((self.stream.local_addr().map_err(fail)?, self.stream.peer_addr().map_err(fail)?))
    }
}

fn hints(options: &Options) -> Hints {
    let mut ep = Info::default().ep;
    ep.kind = kind_named(&options.endpoint);
    let mut fabric = Info::default().fabric;
    fabric.prov_name.clone_from(&options.provider);
    let mut domain = Info::default().domain;
    domain.name.clone_from(&options.domain);
    let kind = if options.mode == "tagged" { ofi::Caps::TAGGED } else { ofi::Caps::MSG };
    Hints { caps: kind, ep: Some(ep), fabric: Some(fabric), domain: Some(domain), ..Hints::default() }
}

/// Chooses the best entry at the local address of the control connection.
fn choose(options: &Options, local: SocketAddr) -> Result<Info, Error> {
    // A domain named by -d may differ from the one of the control connection.
    let ip = local.ip().to_canonical();
    let node = options.domain.is_none().then(|| ip.to_string());
    let mut hints = hints(options);
    hints.addr_format = if ip.is_ipv4() { AddrFormat::SOCKADDR_IN } else { AddrFormat::SOCKADDR_IN6 };
    let source = node.is_some();
    let query = Query { version: Version::API, node, source, hints: Some(hints), ..Query::default() };
    let (infos, refusals) = ofi::discover(&query)?;
    infos.into_iter().next().ok_or_else(|| trouble(refusals.to_string()))
}

fn sizes(options: &Options, most: usize) -> Result<Vec<usize>, Error> {
    const ALL: [usize; 6] = [64, 256, 1024, 4096, 65_536, 1 << 20];
    if options.size == "all" {
        return Ok(ALL.into_iter().filter(|size| *size <= most).collect());
    }
    let size = options.size.parse().map_err(|_| trouble(format!("read the size \"{}\"", options.size)))?;
    if size > most { Err(trouble(format!("{size} bytes are more than {most}"))) } else { Ok(vec![size]) }
}

fn parse(text: &str) -> Result<Addr, Error> {
    text.parse().map_err(|()| trouble(format!("the other side said \"{text}\"")))
}

/// Opens the measured connection.
fn open(options: &Options, control: &mut Control, info: &Info) -> Result<Side, Error> {
    let domain = Domain::open(info)?;
    let cq: CompletionQueue = domain.completion_queue(256)?;
    let tagged = options.mode == "tagged";
    if info.ep.kind == EndpointType::MSG {
        let events = EventQueue::new()?;
        let connected = |events: &EventQueue| match events.next(PATIENCE)? {
            Some(Event::Connected) => Ok(()),
            _ => Err(trouble("the connection was not established")),
        };
        if options.server.is_none() {
            let listener = Listener::listen(info, &events)?;
            control.say(&listener.local_addr()?.to_string())?;
            let Some(Event::Request(request)) = events.next(PATIENCE)? else {
                return Err(trouble("no connection request arrived in time"));
            };
            let ep = domain.endpoint(&request.info(), &cq, Some(&events))?;
            ep.accept(request)?;
            connected(&events)?;
            return Ok(Side::new(ep, cq, FiAddr(0), tagged));
        }
        let ep = domain.endpoint(info, &cq, Some(&events))?;
        ep.connect(parse(&control.hear()?)?)?;
        connected(&events)?;
        return Ok(Side::new(ep, cq, FiAddr(0), tagged));
    }
    let ep = domain.endpoint(info, &cq, None)?;
    control.say(&ep.local_addr()?.to_string())?;
    let peer = ep.peer(parse(&control.hear()?)?);
    Ok(Side::new(ep, cq, peer, tagged))
}

/// Runs the measurement; the waiting side echoes.
///
/// # Errors
/// If the two sides cannot communicate, or a message does not arrive.
pub fn run(options: &Options) -> Result<bool, Error> {
    let mut control = match &options.server {
        Some(server) => Control::connect(server, options.port, options.source_port)?,
        None => Control::wait(options)?,
    };
    control.say(GREETING)?;
    let said = control.hear()?;
    if said != GREETING {
        return Err(trouble(format!("the other side is another program: it says \"{said}\"")));
    }
    let (local, remote) = control.addresses()?;
    let info = choose(options, local)?;
    if options.verbose {
        let provider = info.fabric.prov_name.as_deref().unwrap_or("?");
        let domain = info.domain.name.as_deref().unwrap_or("?");
        eprintln!("{provider} {} on {domain}, from {} to {}", info.ep.kind, local.ip(), remote.ip());
    }
    let sizes = sizes(options, info.ep.max_msg_size)?;
    let mut side = open(options, &mut control, &info)?;
    side.check(options.check);
    let mut rows = Vec::new();
    if !options.json {
        crate::line!(
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec   p50 usec   p99 usec"
        );
    }
    for size in sizes {
        let row = exchange(options, &mut control, &mut side, size)?;
        if !options.json {
            print(&row);
        }
        rows.push(row);
    }
    if options.json {
        crate::line!("{}", crate::json(&rows)?);
    }
    // Neither side exits before both have all messages.
    control.say("bye")?;
    control.hear()?;
    Ok(true)
}

/// Exchanges messages of one size.
fn exchange(options: &Options, control: &mut Control, side: &mut Side, size: usize) -> Result<Row, Error> {
    side.receive(size)?;
    control.say("ready")?;
    control.hear()?;
    let (all, client) = (options.warm_up + options.iterations, options.server.is_some());
    let mut trips = Vec::with_capacity(options.iterations);
    let mut begin = now();
    for turn in 0..all {
        if turn == options.warm_up {
            begin = now();
        }
        let start = now();
        if client {
            side.send(size)?;
        }
        side.take()?;
        if turn + 1 < all {
            side.receive(size)?;
        }
        if !client {
            side.send(size)?;
        }
        if turn >= options.warm_up {
            trips.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    side.settle()?;
    trips.sort_by(f64::total_cmp);
    let at = |percent: usize| trips.get(trips.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0.0);
    let transfers = (2 * options.iterations).max(1) as f64;
    Ok(Row {
        bytes: size,
        sent: options.iterations,
        acknowledged: options.iterations,
        seconds,
        mb_per_second: transfers * size as f64 / seconds / 1e6,
        us_per_transfer: seconds * 1e6 / transfers,
        p50_us: at(50),
        p99_us: at(99),
    })
}

/// Formats a number of bytes or messages in few characters; k and m are powers of 1024.
fn short(value: usize) -> String {
    match value {
        0..1024 => value.to_string(),
        1024..1_048_576 if value.is_multiple_of(1024) => format!("{}k", value >> 10),
        1024..1_048_576 => format!("{:.1}k", value as f64 / 1024.0),
        _ if value.is_multiple_of(1_048_576) => format!("{}m", value >> 20),
        _ => format!("{:.1}m", value as f64 / 1_048_576.0),
    }
}

fn print(row: &Row) {
    crate::line!(
        "{:<8}{:<8}={:<8}{:<8}{:>9.2}s{:>11.2}{:>13.2}{:>13.2}{:>11.2}{:>11.2}",
        short(row.bytes),
        short(row.sent),
        short(row.acknowledged),
        short(row.bytes * row.sent * 2),
        row.seconds,
        row.mb_per_second,
        row.us_per_transfer,
        1.0 / row.us_per_transfer,
        row.p50_us,
        row.p99_us
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([64, 1024, 1280, 1 << 20, 3 << 19].map(short), ["64", "1k", "1.2k", "1m", "1.5m"]);
    }
}
