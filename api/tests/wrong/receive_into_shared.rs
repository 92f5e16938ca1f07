//! A message is received into bytes that cannot be changed.
use ofi::{EndpointType, Fabric, Info, RdmEndpoint};

fn endpoint() -> (RdmEndpoint, ofi::Peer) {
    let info = Info::builder().endpoint(EndpointType::RDM).query().unwrap().remove(0);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let ep = RdmEndpoint::open(&domain, &info).unwrap();
    let me = ep.peer(ep.local_addr().unwrap()).unwrap();
    (ep, me)
}

fn main() {
    let (ep, _) = endpoint();
    let _ = ofi::block_on(ep.receive(std::sync::Arc::<[u8]>::from([0; 8])));
}
