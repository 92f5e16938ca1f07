//! A buffer that must stay in its thread is given to an operation, which other threads end.
use ofi::{EndpointType, Fabric, Info, RdmEndpoint};

fn endpoint() -> (RdmEndpoint, ofi::Peer) {
    let info = Info::builder().endpoint(EndpointType::RDM).query().unwrap().remove(0);
    let domain = Fabric::open(&info).unwrap().domain(&info).unwrap();
    let ep = RdmEndpoint::open(&domain, &info).unwrap();
    let me = ep.peer(ep.local_addr().unwrap()).unwrap();
    (ep, me)
}

struct Local(std::rc::Rc<Vec<u8>>);

impl ofi::IoBuf for Local {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn main() {
    let (ep, me) = endpoint();
    let _ = ofi::block_on(ep.send(me, Local(std::rc::Rc::new(vec![1]))));
}
