//! The listener of a passive endpoint. It maps the memory of a request only to refuse it; otherwise
//! the control message waits as it came for the application's answer.

use crate::control::{ControlChannel, ControlMessage};
use crate::names;
use crate::transport::{Pending, Settings, acceptor, refuse};
use ofi_core::Addr;
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_engine::transport::{ConnectRequest, Listener};
use ofi_os::membarrier;

/// A name that receives connect requests.
#[derive(Debug)]
pub struct ShmListener {
    control: ControlChannel,
    orders: bool,
    /// Another endpoint may take over its identity when it closes.
    releases: bool,
}

impl ShmListener {
    /// Listens under a name, or under a random identity.
    pub fn new(name: Option<&str>, settings: &Settings) -> Result<Self> {
        Self::open(name, settings, true)
    }

    /// The listener of a scalable endpoint. No other endpoint takes over its identity, so that
    /// unread requests end with it.
    pub fn scalable(name: Option<&str>, settings: &Settings) -> Result<Self> {
        Self::open(name, settings, false)
    }

    /// Its control sockets.
    pub(crate) const fn control(&self) -> &ControlChannel {
        &self.control
    }

    fn open(name: Option<&str>, settings: &Settings, releases: bool) -> Result<Self> {
        let control = ControlChannel::open(&settings.space, name)?;
        Ok(Self { control, orders: membarrier::share_ordering(), releases })
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        if self.releases {
            names::release(self.control.identity());
        }
    }
}

impl Listener for ShmListener {
    type Request = Pending;

    fn local_addr(&self) -> Addr {
        self.control.addr()
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Pending>>) -> bool {
        let to = self.control.addr();
        self.control.read(|said| {
            if let ControlMessage::Ask(request) = said {
                let (hello, from) = (request.hello.clone(), request.from);
                asked.push(ConnectRequest { request: Pending(request), hello, from, to });
            }
        })
    }

    /// The kernel authenticates the sender's name.
    fn vouches(&self, _from: &Addr, _name: &Addr) -> bool {
        true
    }

    fn refuse(&mut self, request: Pending, hello: &[u8]) {
        let Pending(request) = request;
        match acceptor(&request) {
            Ok(mut conn) => {
                conn.presence.set_order(self.orders, request.orders);
                refuse(&mut conn, hello.to_vec(), &self.control, self.orders);
            }
            Err(error) => self.control.refuse_memory(&request, &error),
        }
    }

    fn is_gone(&self, Pending(request): &Pending) -> bool {
        !self.control.is_alive(&request.identity.name())
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.control.descriptor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ShmTransport;
    use ofi_engine::transport::Transport;

    #[test]
    fn a_request_is_gone_with_its_initiator() {
        let settings = Settings::default();
        let mut listener = ShmListener::new(None, &settings).unwrap();
        let mut initiator = ShmTransport::new(None, settings).unwrap();
        initiator.connect(&listener.local_addr(), b"hello").unwrap();
        let mut asked = Vec::new();
        assert!(listener.poll(&mut asked));
        let [asked] = &asked[..] else { panic!("{asked:?}") };
        assert!(!listener.is_gone(&asked.request));
        drop(initiator);
        assert!(listener.is_gone(&asked.request));
    }
}
