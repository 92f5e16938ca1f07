//! `fi_pingpong`: two processes on two machines, one message or memory access at a time.

use crate::one_sided::{self, Access};
use crate::pair::{self, kind_named};
use crate::side::{End, Link, PATIENCE, Side, failure, now, percentile};
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use ofi::{
    Addr, AddrFormat, Caps, DomainAttr, EndpointType, EpAttr, Error, Fabric, FabricAttr, Hints, Info, MsgEndpoint,
    MsgListener, Query, Version, block_on,
};
use serde::Serialize;
use socket2::{Domain as Family, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
#[allow(clippy::disallowed_types, reason = "the tool's own talk is not the library's traffic")]
use std::net::{TcpListener, TcpStream};

/// The default port of the control connection, as in libfabric's tool.
const PORT: u16 = 47_592;
/// Maximum length of a control line, in bytes.
const LINE: u64 = 4096;
/// The first control line of both sides.
const GREETING: &str = "ofi fi_pingpong 3";
/// Control lines: whether the endpoint of a side has one-sided operations.
const ACCESSES: [&str; 2] = ["accesses", "messages only"];
/// Length of the word that fetch-add changes.
const WORD: usize = 8;

/// Measures latency and bandwidth between two machines: without an address it waits for the other
/// side, with one it connects to it. Options that change the messages must be the same on both
/// sides. After the messages, the side that connects measures writes, reads and fetch-adds on the
/// other one's memory, if the endpoints have them: `usec/xfer` is half a round trip of messages,
/// and the time from the call to the completion of these.
#[derive(Debug, clap::Parser)]
#[command(name = "fi_pingpong", version, disable_version_flag = true)]
pub struct Options {
    /// Local control port, 0 for any (default: 47592 to wait on, any to connect from)
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
    /// Messages of each size in each direction, and accesses of each size
    #[arg(short = 'I', value_name = "NUMBER", default_value_t = 10, value_parser = at_least_one())]
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
    /// Prints where it waits, and the chosen provider, endpoint type, domain and addresses
    #[arg(short = 'v')]
    verbose: bool,
    /// Listens on IPv6 addresses
    #[arg(short = '6')]
    six: bool,
    /// Messages in each direction, or accesses, before the measurement
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    warm_up: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Name or address of the other side
    #[arg(value_name = "SRV_ADDR")]
    server: Option<String>,
}

fn at_least_one() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The result for messages or accesses of one size.
#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    bytes: usize,
    sent: usize,
    acknowledged: usize,
    /// Bytes of all transfers.
    total: usize,
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
        let fail = |error| Error::os(error, format!("wait at {addr}"));
        let listener = TcpListener::bind(addr).map_err(fail)?;
        if options.verbose {
            eprintln!("waits at {}", listener.local_addr().map_err(fail)?);
        }
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

    fn send_line(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.stream, "{line}").map_err(|error| Error::os(error, "write to the control connection"))
    }

    fn read_line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match (&mut self.lines).take(LINE).read_line(&mut line) {
            Ok(0) => Err(failure("the other side closed the control connection")),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(Error::os(error, "read from the control connection")),
        }
    }

    fn addresses(&self) -> Result<(SocketAddr, SocketAddr), Error> {
        let fail = |error| Error::os(error, "ask for the addresses of the control connection");
        Ok((self.stream.local_addr().map_err(fail)?, self.stream.peer_addr().map_err(fail)?))
    }
}

fn hints(options: &Options, caps: Caps) -> Hints {
    let ep = EpAttr { kind: kind_named(&options.endpoint), ..EpAttr::default() };
    let fabric = FabricAttr { prov_name: options.provider.clone(), ..FabricAttr::default() };
    let domain = DomainAttr { name: options.domain.clone(), ..DomainAttr::default() };
    Hints { caps, ep: Some(ep), fabric: Some(fabric), domain: Some(domain), ..Hints::default() }
}

/// One-sided operations.
const ONE_SIDED: Caps = Caps::RMA.union(Caps::ATOMIC);

/// Chooses the best entry at the local address of the control connection; one with one-sided
/// operations, if there are any.
fn choose(options: &Options, local: SocketAddr) -> Result<Info, Error> {
    // A domain named by -d may differ from the one of the control connection.
    let ip = local.ip().to_canonical();
    let within_host = options.provider.as_deref() == Some("shm");
    let node = (options.domain.is_none() && !within_host).then(|| ip.to_string());
    let kind = if options.mode == "tagged" { Caps::TAGGED } else { Caps::MSG };
    let entries = |caps| {
        let mut hints = hints(options, caps);
        if !within_host {
            hints.addr_format = if ip.is_ipv4() { AddrFormat::SOCKADDR_IN } else { AddrFormat::SOCKADDR_IN6 };
        }
        let (node, source) = (node.clone(), node.is_some());
        ofi::discover(&Query { version: Version::API, node, source, hints: Some(hints), ..Query::default() })
    };
    let (infos, refusals) = entries(kind)?;
    let best = infos.into_iter().next().ok_or_else(|| failure(refusals.to_string()))?;
    // Of the best entry: those with one-sided operations may be of another provider.
    let same = |info: &Info| info.fabric.prov_name == best.fabric.prov_name && info.domain.name == best.domain.name;
    let (with_accesses, _) = entries(kind | ONE_SIDED)?;
    Ok(with_accesses.into_iter().find(same).unwrap_or(best))
}

fn sizes(options: &Options, most: usize) -> Result<Vec<usize>, Error> {
    const ALL: [usize; 6] = [64, 256, 1024, 4096, 65_536, 1 << 20];
    if options.size == "all" {
        return Ok(ALL.into_iter().filter(|size| *size <= most).collect());
    }
    let size = options.size.parse().map_err(|_| failure(format!("read the size \"{}\"", options.size)))?;
    if size > most { Err(failure(format!("{size} bytes are more than {most}"))) } else { Ok(vec![size]) }
}

fn parse(text: &str) -> Result<Addr, Error> {
    text.parse().map_err(|()| failure(format!("the other side sent \"{text}\"")))
}

/// Opens the measured connection.
fn open(options: &Options, control: &mut Control, info: &Info) -> Result<Link, Error> {
    let fabric = Fabric::open(info)?;
    let domain = fabric.domain(info)?;
    let end = if info.ep.kind != EndpointType::MSG {
        pair::open(&domain, info, |mine| {
            control.send_line(&mine.to_string())?;
            parse(&control.read_line()?)
        })?
    } else if options.server.is_none() {
        let listener = MsgListener::listen(&fabric, info)?;
        control.send_line(&listener.local_addr()?.to_string())?;
        End::Msg(pair::accept(&listener, &domain)?)
    } else {
        End::Msg(block_on(MsgEndpoint::connect(&domain, info, parse(&control.read_line()?)?))?)
    };
    Ok(Link { domain, end })
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
    control.send_line(GREETING)?;
    let hello = control.read_line()?;
    if hello != GREETING {
        return Err(failure(format!("the other side is another program: it sent \"{hello}\"")));
    }
    let (local, remote) = control.addresses()?;
    let info = choose(options, local)?;
    if options.verbose {
        let provider = info.fabric.prov_name.as_deref().unwrap_or("?");
        let domain = info.domain.name.as_deref().unwrap_or("?");
        eprintln!("{provider} {} on {domain}, from {} to {}", info.ep.kind, local.ip(), remote.ip());
    }
    let sizes = sizes(options, info.ep.max_msg_size)?;
    let link = open(options, &mut control, &info)?;
    let mut side = Side::new(&link, options.mode == "tagged");
    side.check(options.check);
    let mut rows = Vec::new();
    if !options.json {
        crate::line!(
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec   p50 usec   p99 usec"
        );
    }
    for &size in &sizes {
        let row = exchange(options, &mut control, &mut side, size)?;
        if !options.json {
            print(&row);
        }
        rows.push(row);
    }
    rows.extend(accesses(options, &mut control, &mut side, (&info, &sizes))?);
    if options.json {
        crate::line!("{}", crate::json(&rows)?);
    }
    // Neither side exits before both have all messages.
    control.send_line("bye")?;
    control.read_line()?;
    Ok(true)
}

/// Exchanges messages of one size.
fn exchange(options: &Options, control: &mut Control, side: &mut Side<'_>, size: usize) -> Result<Row, Error> {
    side.receive(size)?;
    control.send_line("ready")?;
    control.read_line()?;
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
    // Each round trip has two transfers.
    Ok(row("message", size, (options.iterations, 2 * options.iterations), (trips, seconds)))
}

/// Measures accesses of each size to the memory of the waiting side; on that side, serves them.
fn accesses(
    options: &Options,
    control: &mut Control,
    side: &mut Side<'_>,
    (info, sizes): (&Info, &[usize]),
) -> Result<Vec<Row>, Error> {
    let [yes, no] = ACCESSES;
    control.send_line(if info.caps.contains(ONE_SIDED) { yes } else { no })?;
    if control.read_line()? != yes || !info.caps.contains(ONE_SIDED) {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for access in Access::ALL {
        if options.server.is_some() && !options.json {
            crate::line!("{}", access.name());
        }
        for &size in if access == Access::FetchAdd { &[WORD] } else { sizes } {
            let (warm_up, trips) = (options.warm_up, options.warm_up + options.iterations);
            if options.server.is_none() {
                one_sided::expose(side, access, size, trips)?;
                continue;
            }
            let (times, _) = one_sided::measure(side, access, size, (warm_up, trips, 0))?;
            let seconds = times.iter().sum::<f64>() / 1e6;
            let row = row(access.name(), size, (options.iterations, options.iterations), (times, seconds));
            if !options.json {
                print(&row);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Summarizes the transfers of one size: their number, total time and individual times.
fn row(
    operation: &'static str,
    size: usize,
    (sent, transfers): (usize, usize),
    (mut times, seconds): (Vec<f64>, f64),
) -> Row {
    times.sort_by(f64::total_cmp);
    let (total, transfers) = (size * transfers, transfers.max(1) as f64);
    Row {
        operation,
        bytes: size,
        sent,
        acknowledged: sent,
        total,
        seconds,
        mb_per_second: transfers * size as f64 / seconds / 1e6,
        us_per_transfer: seconds * 1e6 / transfers,
        p50_us: percentile(&times, 50),
        p99_us: percentile(&times, 99),
    }
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
        short(row.total),
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
    use clap::Parser;

    #[test]
    fn nothing_is_measured_without_iterations() {
        let parse = |number| Options::try_parse_from(["fi_pingpong", "-I", number, "--warm-up", "0"]);
        assert!(parse("0").is_err());
        assert_eq!(parse("1").map(|options| options.iterations).ok(), Some(1));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([64, 1024, 1280, 1 << 20, 3 << 19].map(short), ["64", "1k", "1.2k", "1m", "1.5m"]);
    }
}
