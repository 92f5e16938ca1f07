//! Processes that sum a vector: each ends with the sum of all, after log2(n) exchanges.
//!
//! `allreduce 4` starts four processes.

use ofi::{Addr, EndpointType, Errno, Error, Fabric, Info, Peer, RdmEndpoint};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// Elements of the vector.
const COUNT: usize = 1000;

/// Sums over a number of ranks that is a power of two: in round r, ranks that differ in bit r
/// exchange their partial sums. The tag is the round.
async fn allreduce(ep: &RdmEndpoint, ranks: &[Peer], rank: usize, mut sum: Vec<u64>) -> Result<Vec<u64>, Error> {
    let mut bit = 1;
    while bit < ranks.len() {
        let bytes: Vec<u8> = sum.iter().flat_map(|element| element.to_le_bytes()).collect();
        let receive = ep.receive_tagged(bit as u64, 0, vec![0; bytes.len()]);
        let send = ep.send_tagged(ranks[rank ^ bit], bit as u64, bytes);
        let (received, other) = receive.await;
        received?;
        for (element, bytes) in sum.iter_mut().zip(other.chunks_exact(8)) {
            *element += bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        send.await.0?;
        bit *= 2;
    }
    Ok(sum)
}

/// A process of the group: `exchange` gives its address away and returns those of all.
fn member(rank: usize, exchange: impl FnOnce(Addr) -> Result<Vec<String>, Error>) -> Result<(), Error> {
    let info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    let parse = |text: &String| text.parse().map_err(|()| Error::new(Errno::EINVAL, "read an address"));
    let ranks: Result<Vec<Peer>, Error> =
        exchange(ep.local_addr()?)?.iter().map(|text| ep.peer(parse(text)?)).collect();
    let (ranks, mine) = (ranks?, (0..COUNT as u64).map(|at| at + rank as u64).collect());
    let sum = ofi::block_on(allreduce(&ep, &ranks, rank, mine))?;
    let (n, all) = (ranks.len() as u64, 0..COUNT as u64);
    let right = sum.into_iter().eq(all.map(|at| n * at + n * (n - 1) / 2));
    eprintln!("rank {rank}: {}", if right { "right" } else { "WRONG" });
    if right { Ok(()) } else { Err(Errno::EOTHER.into()) }
}

fn read_line(from: &mut impl BufRead) -> Result<String, Error> {
    let mut line = String::new();
    from.read_line(&mut line).map_err(|error| Error::os(error, "read a line"))?;
    Ok(line.trim().to_owned())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    if let Some(rank) = number(1) {
        return member(rank, |mine| {
            println!("{mine}");
            Ok(read_line(&mut std::io::stdin().lock())?.split(' ').map(str::to_owned).collect())
        });
    }
    let count = number(0).filter(|count| count.is_power_of_two());
    let count = count.ok_or_else(|| Error::new(Errno::EINVAL, "the number of processes is a power of two"))?;
    let this = std::env::current_exe().map_err(|error| Error::os(error, "find this program"))?;
    let start = |rank: usize| {
        let mut command = Command::new(&this);
        command.args([count.to_string(), rank.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|error| Error::os(error, "start a process"))
    };
    let mut others = (1..count).map(start).collect::<Result<Vec<Child>, Error>>()?;
    let outcome = member(0, |mine| {
        let mut all = vec![mine.to_string()];
        for other in &mut others {
            let output = other.stdout.take().ok_or(Errno::EOTHER)?;
            all.push(read_line(&mut BufReader::new(output))?);
        }
        for other in &mut others {
            let mut input = other.stdin.take().ok_or(Errno::EOTHER)?;
            writeln!(input, "{}", all.join(" ")).map_err(|error| Error::os(error, "send the addresses"))?;
        }
        Ok(all)
    });
    for mut other in others {
        let status = other.wait().map_err(|error| Error::os(error, "wait for a process"))?;
        if !status.success() {
            return Err(Error::new(Errno::EOTHER, "a process failed"));
        }
    }
    outcome
}
