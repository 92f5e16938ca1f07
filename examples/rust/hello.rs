//! Two endpoints in one process; the first sends a tagged message to the second.
//! The twin of `examples/c/hello.c`.

use ofi::{Caps, EndpointType, Error, Fabric, Info, RdmEndpoint};

fn main() -> Result<(), Error> {
    let info = Info::builder().endpoint(EndpointType::RDM).caps(Caps::TAGGED).query()?.remove(0);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let (first, second) = (RdmEndpoint::open(&domain, &info)?, RdmEndpoint::open(&domain, &info)?);
    let peer = first.peer(second.local_addr()?)?;
    let receive = second.receive_tagged(7, 0, vec![0; 64]);
    ofi::block_on(first.send_tagged(peer, 7, "hello from the first endpoint")).0?;
    let (received, buf) = ofi::block_on(receive);
    println!("{}", String::from_utf8_lossy(&buf[..received?.len()]));
    Ok(())
}
