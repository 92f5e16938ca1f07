//! The feature `tracing`: a program's subscriber hears what the library has to say.
#![cfg(feature = "tracing")]

use ofi::{EndpointType, Fabric, Info, RdmEndpoint};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the events as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a String takes all text");
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ofi"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().expect("no test panics with it").push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_failure_is_an_event_with_provider_and_subsystem() {
    let events = Events::default();
    tracing::subscriber::set_global_default(events.clone()).expect("it is the only one");
    let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query().expect("shm is built in").remove(0);
    let domain = Fabric::open(&info).and_then(|fabric| fabric.domain(&info)).expect("it opens");
    let ep = RdmEndpoint::open(&domain, &info).expect("it opens");
    let me = ep.peer(ep.local_addr().expect("it is open")).expect("its own address");
    let receive = ep.receive(vec![0; 4]);
    ofi::block_on(ep.send(me, "ten bytes!")).0.expect("it is sent");
    ofi::block_on(receive).0.expect_err("it does not fit");
    let heard = events.0.lock().expect("no test panics with it").join("\n");
    let wanted =
        "ERROR message=a message of 10 bytes matched a receive of 4 bytes: truncated provider=\"shm\" subsystem=EpData";
    assert!(heard.contains(wanted), "heard {heard:?}");
}
