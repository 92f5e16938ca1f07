//! What listens for a passive endpoint: questions wait for the application's answer as the letters that they came in.

use crate::conn::{Conn, State};
use crate::control::{ControlChannel, ControlMessage};
use crate::names;
use crate::region::{Region, Side};
use crate::transport::{Pending, Settings, refuse};
use ofi_core::error::Result;
use ofi_core::wait::Descriptor;
use ofi_core::{Addr, Instant};
use ofi_engine::transport::{ConnectRequest, Listener};
use ofi_os::shm;
use std::os::fd::AsFd;

/// A name that questions come to.
#[derive(Debug)]
pub struct ShmListener {
    post: ControlChannel,
    local: Addr,
    orders: bool,
}

impl ShmListener {
    /// Listens under a name, or under a random identity.
    pub fn new(name: Option<&str>, settings: &Settings) -> Result<Self> {
        let post = ControlChannel::open(&settings.space, name)?;
        let local = post.addr()?;
        Ok(Self { post, local, orders: shm::share_ordering() })
    }
}

impl Drop for ShmListener {
    fn drop(&mut self) {
        names::release(self.post.identity());
    }
}

impl Listener for ShmListener {
    type Request = Pending;

    fn local_addr(&self) -> Addr {
        self.local
    }

    fn poll(&mut self, asked: &mut Vec<ConnectRequest<Pending>>) -> bool {
        let to = self.local;
        self.post.read(|said| {
            if let ControlMessage::Ask(question) = said {
                let (hello, from) = (question.hello.clone(), question.from);
                asked.push(ConnectRequest { request: Pending(question), hello, from, to });
            }
        })
    }

    fn refuse(&mut self, request: Pending, hello: &[u8]) {
        let Pending(question) = request;
        let conn = Region::attach(question.memory.as_fd()).and_then(|region| {
            let peer = question.identity.name();
            Conn::new(region, Side::Acceptor, State::Open, question.from, peer, question.number)
        });
        match conn {
            Ok(mut conn) => {
                conn.set_order(self.orders, question.orders);
                refuse(&mut conn, hello.to_vec(), &self.post, self.orders);
            }
            Err(error) => self.post.refuse_memory(&question, &error),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.post.descriptor())
    }
}
