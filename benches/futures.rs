//! Measures messages through the crate's futures, as `benches/fabric.c` does through the C
//! interface, for `cargo xtask bench` to compare the two:
//! `--pattern latency` half a round trip in microseconds, `--pattern stream` windows of messages,
//! each answered, in MB/s. Two processes: this one, which its caller pins, and one that it starts
//! on the core `--other`. Each runs its futures in `ofi::block_on`; buffers are written once.
//! Prints the value, and two zeros in place of the cache line's latency.

use clap::Parser;
use ofi::{Addr, Caps, EndpointType, Errno, Error, Fabric, Info, Operation, Peer, RdmEndpoint};
use ofi_os::clock;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The tags of messages, and of the receiver's answers to windows of them.
const PAYLOAD: u64 = 1000;
const ANSWER: u64 = 2000;
/// Repetitions between two looks at the clock.
const BATCH: u32 = 16;
/// How long it repeats before it measures, as `benches/fabric.c` does to calibrate.
const WARM: Duration = Duration::from_millis(60);

#[derive(Clone, Debug, Parser)]
struct Options {
    #[arg(long)]
    provider: String,
    #[arg(long)]
    pattern: String,
    #[arg(long)]
    size: usize,
    #[arg(long)]
    window: usize,
    #[arg(long)]
    milliseconds: u64,
    /// The core of the other process
    #[arg(long)]
    other: usize,
    /// The address of the process that has started this one
    #[arg(long)]
    peer: Option<String>,
}

type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A process's end.
struct End<'a> {
    ep: &'a RdmEndpoint,
    peer: Peer,
    options: &'a Options,
}

impl End<'_> {
    #[inline]
    fn receive(&self, buf: Vec<u8>) -> Operation<'_, Vec<u8>> {
        self.ep.receive_tagged(PAYLOAD, 0, buf)
    }

    #[inline]
    fn send(&self, buf: Vec<u8>) -> Operation<'_, Vec<u8>> {
        self.ep.send_tagged(self.peer, PAYLOAD, buf)
    }

    fn buf(&self) -> Vec<u8> {
        vec![7; self.options.size]
    }

    /// Repeats until the time is over; returns how often, and how long it took.
    async fn timed(&self, mut run: impl AsyncFnMut() -> Result) -> Result<(f64, Duration)> {
        let mut repeat = async |limit: Duration| {
            let (start, mut count) = (clock::now(), 0.0);
            while clock::now().since(start) < limit {
                for _ in 0..BATCH {
                    run().await?;
                }
                count += f64::from(BATCH);
            }
            Ok((count, clock::now().since(start)))
        };
        repeat(WARM).await?;
        repeat(Duration::from_millis(self.options.milliseconds)).await
    }

    /// Half a round trip.
    async fn ping(&self) -> Result<f64> {
        let (mut out, mut back) = (self.buf(), self.buf());
        let round_trip = async || {
            let receive = self.receive(std::mem::take(&mut back));
            let (sent, buf) = self.send(std::mem::take(&mut out)).await;
            (_, out) = (sent?, buf);
            let (received, buf) = receive.await;
            back = buf;
            whole(received?.len(), &back)
        };
        let (count, took) = self.timed(round_trip).await?;
        self.ep.send_tagged(self.peer, PAYLOAD, ()).await.0?;
        Ok(took.as_secs_f64() * 1e6 / count / 2.0)
    }

    /// Sends each message back, until an empty one arrives.
    async fn pong(&self) -> Result {
        let (mut out, mut receive) = (self.buf(), self.receive(self.buf()));
        loop {
            let (received, buf) = receive.await;
            if received?.len() == 0 {
                return Ok(());
            }
            // Before the answer leaves, so that no message is unexpected.
            receive = self.receive(buf);
            let (sent, buf) = self.send(out).await;
            (_, out) = (sent?, buf);
        }
    }

    /// Receives windows of messages; returns MB/s.
    async fn sink(&self) -> Result<f64> {
        let mut spare: Vec<_> = (0..self.options.window).map(|_| self.buf()).collect();
        let mut receives = VecDeque::with_capacity(spare.len());
        let mut window = async || {
            receives.extend(spare.drain(..).map(|buf| self.receive(buf)));
            for receive in receives.drain(..) {
                let (received, buf) = receive.await;
                whole(received?.len(), &buf)?;
                spare.push(buf);
            }
            Ok::<(), Error>(())
        };
        let (count, took) = self
            .timed(async || {
                window().await?;
                self.ep.send_tagged(self.peer, ANSWER, [1; 8]).await.0?;
                Ok(())
            })
            .await?;
        window().await?;
        self.ep.send_tagged(self.peer, ANSWER, ()).await.0?;
        Ok(count * (self.options.window * self.options.size) as f64 / took.as_secs_f64() / 1e6)
    }

    /// Sends windows of messages until an answer is empty.
    async fn source(&self) -> Result {
        let mut spare: Vec<_> = (0..self.options.window).map(|_| self.buf()).collect();
        let mut sends = VecDeque::with_capacity(spare.len());
        loop {
            let answer = self.ep.receive_tagged(ANSWER, 0, [0; 8]);
            sends.extend(spare.drain(..).map(|buf| self.send(buf)));
            for send in sends.drain(..) {
                let (sent, buf) = send.await;
                sent?;
                spare.push(buf);
            }
            if answer.await.0?.len() == 0 {
                return Ok(());
            }
        }
    }
}

fn whole(len: usize, buf: &[u8]) -> Result {
    if len == buf.len() { Ok(()) } else { Err(Error::new(Errno::EIO, format!("a message of {len} bytes"))) }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let query = Info::builder().provider(&options.provider).endpoint(EndpointType::RDM);
    let query = query.caps(Caps::MSG | Caps::TAGGED);
    let query = if options.provider == "shm" { query } else { query.node("127.0.0.1").source() };
    let info = query.query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    let addr = |text: &str| text.trim().parse::<Addr>().map_err(|()| format!("{text:?} is not an address"));
    if let Some(peer) = &options.peer {
        println!("{}", ep.local_addr()?);
        let end = End { ep: &ep, peer: ep.peer(addr(peer)?)?, options: &options };
        let role = async { if options.pattern == "latency" { end.pong().await } else { end.source().await } };
        return Ok(ofi::block_on(role)?);
    }
    let mut other = Command::new("taskset");
    other.arg("-c").arg(options.other.to_string()).arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
    let mut other = other.arg("--peer").arg(ep.local_addr()?.to_string()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(other.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let end = End { ep: &ep, peer: ep.peer(addr(&line)?)?, options: &options };
    let value = async { if options.pattern == "latency" { end.ping().await } else { end.sink().await } };
    let value = ofi::block_on(value)?;
    if !other.wait()?.success() {
        return Err("the other process failed".into());
    }
    println!("{value} 0 0");
    Ok(())
}
