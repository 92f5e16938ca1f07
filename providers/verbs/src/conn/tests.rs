use super::*;
use crate::device::{Exposed, Place, Work};
use ofi_engine::wire::frame::{AckMode, Frame, MessageInfo};

/// A connection whose device takes segments, and then refuses to send them.
#[derive(Debug)]
struct Refusing([u8; SLOT]);

#[derive(Debug)]
struct Nothing;

impl Exposed for Nothing {
    fn place(&self) -> Place {
        Place { address: 0, key: 0 }
    }
    fn withdraw(self) -> Buffer {
        Buffer::empty()
    }
}

impl Pair for Refusing {
    type Done = ();
    type Exposed = Nothing;

    fn key(&self) -> u64 {
        1
    }
    fn claim(&mut self, (): ()) -> Option<Work> {
        None
    }
    fn received(&self, _: u16) -> &[u8] {
        &[]
    }
    fn post_receive(&mut self, _: u16) -> io::Result<()> {
        Ok(())
    }
    fn send_slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
    fn send(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn send_last(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn send_ending(&mut self, _: usize, _: u32) -> io::Result<()> {
        Ok(())
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
    fn is_sent(&self) -> bool {
        true
    }
    fn expose(&mut self, buffer: Buffer, _: usize, _: usize) -> Result<Nothing, (Buffer, io::Error)> {
        Err((buffer, io::ErrorKind::Unsupported.into()))
    }
    fn knows(&self, _: &Buffer, _: usize, _: usize) -> bool {
        false
    }
    fn note(&mut self, _: &Buffer, _: usize, _: usize) {}
    fn take_back(&mut self, exposed: Nothing) -> Result<Buffer, Nothing> {
        Err(exposed)
    }
    fn read(&mut self, _: u16, _: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        Err((target, io::ErrorKind::Unsupported.into()))
    }
    fn read_copied(&mut self, _: u16, _: Place, target: RecvTarget) -> Result<(), (RecvTarget, io::Error)> {
        Err((target, io::ErrorKind::Unsupported.into()))
    }
    fn take_read(&mut self, _: u16) -> Option<RecvTarget> {
        None
    }
    fn reject(self, _: &[u8]) {}
    fn stop(&mut self) -> Vec<RecvTarget> {
        Vec::new()
    }
}

#[test]
fn a_frame_that_the_device_refuses_to_send_is_not_done() {
    let mut conn = Conn::new(Refusing([0; SLOT]), Addr::ANY);
    conn.grant(Grant { slots: 32, slot: SLOT });
    let info = MessageInfo { tag: None, data: None, ack: AckMode::No, fenced: false, group: false };
    let header = Frame::Eager { id: 1, info }.encode();
    for len in [8, 3 * SLOT] {
        conn.broken = None;
        let mut buffer = Some(Buffer::Owned(vec![1; len]));
        let payload = Payload { buffer: &mut buffer, from: 0, len, token: Token(1), inject: false };
        assert!(matches!(conn.submit(&header, payload), Submitted::Broken), "{len}");
        assert!(conn.is_broken() && buffer.is_some());
    }
}
