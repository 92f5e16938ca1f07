//! Two processes: a server that prints its address and sends every message back, and a client that
//! is given the address. The twin of `examples/c/echo.c`.
//!
//! `echo`, and in another terminal `echo ADDRESS one two three`

use ofi::{Addr, EndpointType, Errno, Error, Fabric, Info, RdmEndpoint};
use std::time::Duration;

/// The longest message.
const SIZE: usize = 256;

async fn serve(ep: &RdmEndpoint) -> Result<(), Error> {
    println!("{}", ep.local_addr()?);
    let mut incoming = ep.incoming(8, SIZE);
    loop {
        // A message is the client's address, a line break and the text.
        let message = incoming.next().await?;
        let text = String::from_utf8_lossy(&message).into_owned();
        let Some((addr, text)) = text.split_once('\n') else { continue };
        let Ok(addr) = addr.parse::<Addr>() else { continue };
        let text = text.to_owned();
        let last = text == "bye";
        ep.send(ep.peer(addr)?, text).await.0?;
        if last {
            return Ok(());
        }
        incoming.recycle(message);
    }
}

async fn ask(ep: &RdmEndpoint, server: &str, texts: &[String]) -> Result<(), Error> {
    let server = server.parse().map_err(|()| Error::new(Errno::EINVAL, "read the server's address"))?;
    let server = ep.peer(server)?;
    for text in texts.iter().map(String::as_str).chain(["bye"]) {
        let answer = ep.receive(vec![0; SIZE]).timeout(Duration::from_secs(30));
        ep.send(server, format!("{}\n{text}", ep.local_addr()?)).await.0?;
        let (received, buf) = answer.await;
        println!("{}", String::from_utf8_lossy(&buf[..received?.len()]));
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        None => ofi::block_on(serve(&ep)),
        Some((server, texts)) => ofi::block_on(ask(&ep, server, texts)),
    }
}
