//! The result of an operation is taken twice.
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
    let send = ep.send(me, vec![1]);
    let _ = ofi::block_on(send);
    let _ = ofi::block_on(send);
}
