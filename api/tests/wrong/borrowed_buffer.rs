//! A buffer on the stack is lent to an operation that may outlive it.
use ofi::{EndpointType, Fabric, Info, RdmEndpoint};

fn endpoint() -> (RdmEndpoint, ofi::Peer) {
    let info = Info::builder().endpoint(EndpointType::RDM).query().unwrap().remove(0);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let ep = RdmEndpoint::open(&domain, &info).unwrap();
    let me = ep.peer(ep.local_addr().unwrap()).unwrap();
    (ep, me)
}

fn main() {
    let (ep, me) = endpoint();
    let bytes = [1u8, 2, 3];
    let send = ep.send(me, &bytes[..]);
    let _ = ofi::block_on(send);
}
