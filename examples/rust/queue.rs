//! A work queue over tags: workers ask for tasks with one tag and answer with another, so that the
//! server knows questions from answers without a look into them.
//!
//! `queue 1000` serves a thousand tasks and prints its address; `queue ADDRESS` starts a worker.

use ofi::{EndpointType, Errno, Error, Fabric, Info, RdmEndpoint};

/// A worker's address: it asks for a task.
const ASK: u64 = 1;
/// A task, or nothing if there are no more.
const TASK: u64 = 2;
/// The result of a task.
const ANSWER: u64 = 3;

/// Sums the squares of the numbers up to `count`, each a task for the worker that asks next.
async fn serve(ep: &RdmEndpoint, count: u64) -> Result<(), Error> {
    println!("{}", ep.local_addr()?);
    let mut asking = ep.incoming_tagged(ASK, 0, 8, 64);
    let mut answers = ep.incoming_tagged(ANSWER, 0, 8, 8);
    let (mut next, mut answered, mut sum) = (1, 0, 0u64);
    while answered < count {
        // Hands out tasks as long as there are any, and takes as many answers.
        if next <= count {
            let worker = String::from_utf8_lossy(&asking.next().await?).parse();
            let worker = ep.peer(worker.map_err(|()| Error::new(Errno::EPROTO, "read a worker's address"))?)?;
            ep.send_tagged(worker, TASK, u64::to_le_bytes(next)).await.0?;
            next += 1;
        }
        let answer = answers.next().await?;
        sum += answer.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        answered += 1;
    }
    println!("{sum}");
    // A worker that asks again learns that nothing is left.
    let worker = String::from_utf8_lossy(&asking.next().await?).parse().map_err(|()| Errno::EPROTO)?;
    let done = ep.message(ep.peer(worker)?).tag(TASK).delivery_complete();
    done.send(()).await.0?;
    Ok(())
}

async fn work(ep: &RdmEndpoint, server: &str) -> Result<(), Error> {
    let server = server.parse().map_err(|()| Error::new(Errno::EINVAL, "read the server's address"))?;
    let (server, mine) = (ep.peer(server)?, ep.local_addr()?.to_string());
    loop {
        let task = ep.receive_tagged(TASK, 0, [0; 8]);
        ep.send_tagged(server, ASK, mine.clone()).await.0?;
        let (received, number) = task.await;
        if received?.len() == 0 {
            return Ok(());
        }
        let number = u64::from_le_bytes(number);
        ep.send_tagged(server, ANSWER, (number * number).to_le_bytes()).await.0?;
    }
}

fn main() -> Result<(), Error> {
    let info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    let argument = std::env::args().nth(1).unwrap_or_else(|| "1000".to_owned());
    match argument.parse() {
        Ok(count) => ofi::block_on(serve(&ep, count)),
        Err(_) => ofi::block_on(work(&ep, &argument)),
    }
}
