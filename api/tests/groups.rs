//! Multicast groups of datagram endpoints.
#![cfg(feature = "udp")]

use ofi::{Addr, DatagramEndpoint, Domain, EndpointType, Errno, Fabric, Info, Ways, block_on};
use std::net::SocketAddr;

fn open() -> (Domain, Info) {
    let query = Info::builder().provider("udp").endpoint(EndpointType::DGRAM).node("127.0.0.1").source();
    let info = query.query().unwrap().remove(0);
    (Fabric::open(&info).unwrap().domain(&info).unwrap(), info)
}

fn next(ep: &DatagramEndpoint) -> Vec<u8> {
    let (received, mut buf) = block_on(ep.receive(vec![0; 64]));
    buf.truncate(received.unwrap().len());
    buf
}

#[test]
fn members_receive_until_they_leave() {
    let (domain, info) = open();
    let [one, two] = [(); 2].map(|()| DatagramEndpoint::open(&domain, &info).unwrap());
    let addr = Addr::from(SocketAddr::from(([239, 7, 7, 9], one.local_addr().unwrap().socket().port())));
    let group = block_on(one.join(addr, Ways::SEND)).unwrap();
    assert_eq!(group.addr(), addr);
    let member = block_on(two.join(addr, Ways::RECEIVE)).unwrap();
    let again = block_on(two.join(addr, Ways::BOTH)).unwrap();
    block_on(one.send(group.peer(), "to all")).0.unwrap();
    assert_eq!(next(&two), b"to all");
    drop(member);
    block_on(one.send(group.peer(), "to those left")).0.unwrap();
    assert_eq!(next(&two), b"to those left");
    drop(again);
    block_on(one.send(group.peer(), "to nobody")).0.unwrap();
    let to_two = one.peer(two.local_addr().unwrap()).unwrap();
    block_on(one.send(to_two, "to one")).0.unwrap();
    assert_eq!(next(&two), b"to one");
    // The group is no receiver once it is left.
    let gone = group.peer();
    drop(group);
    assert_eq!(block_on(one.send(gone, "?")).0.unwrap_err().errno(), Errno::EINVAL);
    // A membership may outlast its endpoint.
    let late = block_on(two.join(addr, Ways::BOTH)).unwrap();
    drop(two);
    drop(late);
}

#[test]
fn an_address_that_is_no_group_is_refused() {
    let (domain, info) = open();
    let ep = DatagramEndpoint::open(&domain, &info).unwrap();
    let v6 = Addr::from("[ff02::1]:7".parse::<SocketAddr>().unwrap());
    for addr in [ep.local_addr().unwrap(), v6] {
        assert_eq!(block_on(ep.join(addr, Ways::BOTH)).unwrap_err().errno(), Errno::EADDRNOTAVAIL);
    }
}
