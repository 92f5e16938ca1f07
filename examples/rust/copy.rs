//! Copies a file to another process: the receiver exposes windows of memory, and the sender writes
//! into them while earlier ones are on their way to the disk.
//!
//! `copy FILE` receives into a file and prints its address; `copy FILE ADDRESS` sends one.

use ofi::{EndpointType, Errno, Error, Fabric, Info, MrAccess, RdmEndpoint, RemoteKey};
use std::fs::File;
use std::io::{Read, Write};

/// Bytes of a window.
const WINDOW: usize = 1 << 20;
/// Windows in flight.
const DEPTH: usize = 4;
/// The sender's address.
const HELLO: u64 = 1;
/// The key of a window that is free.
const FREE: u64 = 2;
/// A window is full: its length is the message's data, and 0 ends the file.
const FULL: u64 = 3;

fn os(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::os(error, doing)
}

async fn receive(domain: &ofi::Domain, ep: &RdmEndpoint, name: &str) -> Result<(), Error> {
    let mut file = File::create(name).map_err(os("create the file"))?;
    println!("{}", ep.local_addr()?);
    let (hello, addr) = ep.receive_tagged(HELLO, 0, vec![0; 64]).await;
    let sender = String::from_utf8_lossy(&addr[..hello?.len()]).parse().map_err(|()| Errno::EPROTO)?;
    let sender = ep.peer(sender)?;
    let mut full = ep.incoming_tagged(FULL, 0, DEPTH, 0);
    let mut windows = Vec::new();
    for _ in 0..DEPTH {
        let window = domain.register(vec![0; WINDOW], MrAccess::REMOTE_WRITE)?;
        ep.send_tagged(sender, FREE, window.remote_key().to_bytes()).await.0?;
        windows.push(window);
    }
    let mut bytes = vec![0; WINDOW];
    // The sender fills windows in the order in which they became free.
    for window in windows.iter().cycle() {
        let message = full.next().await?;
        let len = message.completion().data().and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        if len == 0 {
            return Ok(());
        }
        window.read(0, &mut bytes[..len])?;
        ep.send_tagged(sender, FREE, window.remote_key().to_bytes()).await.0?;
        file.write_all(&bytes[..len]).map_err(os("write the file"))?;
    }
    Ok(())
}

async fn send(ep: &RdmEndpoint, name: &str, to: &str) -> Result<(), Error> {
    let mut file = File::open(name).map_err(os("open the file"))?;
    let size = file.metadata().map_err(os("measure the file"))?.len();
    let receiver = ep.peer(to.parse().map_err(|()| Error::new(Errno::EINVAL, "read the receiver's address"))?)?;
    let mut free = ep.incoming_tagged(FREE, 0, DEPTH, RemoteKey::BYTES);
    ep.send_tagged(receiver, HELLO, ep.local_addr()?.to_string()).await.0?;
    let (mut buf, mut sent) = (vec![0; WINDOW], 0);
    loop {
        let len = file.read(&mut buf).map_err(os("read the file"))?;
        let window = RemoteKey::from_bytes(&free.next().await?).ok_or(Errno::EPROTO)?;
        buf.truncate(len);
        // A write and a later message to the same peer arrive in order.
        let (written, back) = ep.write(receiver, window, buf).await;
        written?;
        let message = ep.message(receiver).tag(FULL).data(len as u64).delivery_complete();
        message.send(()).await.0?;
        if len == 0 {
            eprintln!();
            return Ok(());
        }
        (buf, sent) = (back, sent + len as u64);
        buf.resize(WINDOW, 0);
        eprint!("\r{:3} %", 100 * sent / size.max(1));
    }
}

fn main() -> Result<(), Error> {
    let info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(name), Some(to)) => ofi::block_on(send(&ep, &name, &to)),
        (Some(name), None) => ofi::block_on(receive(&domain, &ep, &name)),
        _ => Err(Error::new(Errno::EINVAL, "copy FILE, or copy FILE ADDRESS")),
    }
}
