//! Unix datagram sockets (unix(7)) by which processes of a host find each other by name and pass
//! descriptors. A name is in the abstract namespace, and ends with its process, or a file in a
//! folder, for processes in different network namespaces.
#![allow(unsafe_code)]

use crate::descriptor::{Private, PrivateFd};
use crate::uncancelled;
use core::mem::{offset_of, size_of, zeroed};
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The namespace of socket names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// The abstract namespace, one per network namespace.
    #[default]
    Abstract,
    /// Files in a folder.
    Folder(PathBuf),
}

/// Prefix of file names in a [`Space::Folder`].
const PREFIX: &str = "ofi-shm-";

impl Space {
    fn path(&self, name: &str) -> Vec<u8> {
        match self {
            Self::Abstract => [b"\0", name.as_bytes()].concat(),
            Self::Folder(folder) => {
                let mut file = PREFIX.to_owned();
                for byte in name.bytes() {
                    if byte.is_ascii_alphanumeric() || byte == b'-' {
                        file.push(char::from(byte));
                    } else {
                        file.push_str(&format!("_{byte:02x}"));
                    }
                }
                folder.join(file).as_os_str().as_bytes().to_vec()
            }
        }
    }

    /// The inverse of `path`.
    fn name(&self, path: &[u8]) -> Option<String> {
        match self {
            Self::Abstract => String::from_utf8(path.strip_prefix(b"\0")?.to_vec()).ok(),
            Self::Folder(_) => {
                let path = Path::new(std::ffi::OsStr::from_bytes(path.split(|byte| *byte == 0).next()?));
                let text = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
                let mut out = Vec::new();
                let mut rest = text.bytes();
                while let Some(byte) = rest.next() {
                    if byte == b'_' {
                        let hex = [rest.next()?, rest.next()?];
                        out.push(u8::from_str_radix(core::str::from_utf8(&hex).ok()?, 16).ok()?);
                    } else {
                        out.push(byte);
                    }
                }
                String::from_utf8(out).ok()
            }
        }
    }

    fn address(&self, name: &str) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
        let path = self.path(name);
        // SAFETY: an all-zero address is a valid one.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or(0);
        if path.len() >= address.sun_path.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in address.sun_path.iter_mut().zip(&path) {
            *to = from.cast_signed();
        }
        let len = offset_of!(libc::sockaddr_un, sun_path) + path.len();
        Ok((address, libc::socklen_t::try_from(len).unwrap_or(0)))
    }

    /// Removes files left behind by processes that have ended.
    pub fn sweep(&self) {
        let Self::Folder(folder) = self else { return };
        // An unreadable folder fails later, when a name is bound in it.
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let probe = Probe::new(self);
        for entry in entries.flatten() {
            let path = entry.path();
            let stale =
                self.name(path.as_os_str().as_bytes()).is_some_and(|name| matches!(probe.finds(&name), Ok(false)));
            if stale {
                // Another process may have removed it first.
                drop(std::fs::remove_file(path));
            }
        }
    }
}

/// Checks whether names are in use. One socket serves all names.
#[derive(Debug)]
pub struct Probe {
    space: Space,
    socket: OnceLock<PrivateFd>,
}

impl Probe {
    /// A probe for names in `space`.
    pub fn new(space: &Space) -> Self {
        Self { space: space.clone(), socket: OnceLock::new() }
    }

    /// Whether a socket has that name.
    pub fn finds(&self, name: &str) -> io::Result<bool> {
        let (address, len) = self.space.address(name)?;
        let probe = match self.socket.get() {
            Some(probe) => probe,
            None => {
                let fresh = socket()?;
                self.socket.get_or_init(|| fresh)
            }
        };
        // A datagram socket may be connected repeatedly.
        // SAFETY: the address is a local.
        let result = unsafe { libc::connect(probe.as_raw_fd(), (&raw const address).cast(), len) };
        if result == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::ENOENT) => Ok(false),
            _ => Err(error),
        }
    }
}

fn socket() -> io::Result<PrivateFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and owned by nothing else.
    Ok(Private::new(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// A received control message.
#[derive(Debug)]
pub struct ControlDatagram {
    /// Length in bytes.
    pub len: usize,
    /// The sender's name, from the kernel.
    pub from: Option<String>,
    /// The sender's user and process ids, from the kernel.
    pub credentials: Option<(u32, i32)>,
    /// The descriptors passed with it.
    pub descriptors: Vec<PrivateFd>,
}

/// A named control socket.
#[derive(Debug)]
pub struct ControlSocket {
    socket: PrivateFd,
    space: Space,
    name: String,
}

/// Maximum descriptors per control message.
pub const MOST_DESCRIPTORS: usize = 2;

/// Tells the sender of a control message whether a process that may answer still holds it: the
/// pipe's other end is passed with the message.
#[derive(Debug)]
pub struct LivenessPipe(Private<PipeReader>);

impl LivenessPipe {
    /// The sender's end, and the end to pass with the message.
    pub fn new() -> io::Result<(Self, PrivateFd)> {
        let (mine, theirs) = io::pipe()?;
        Ok((Self(Private::new(mine)), Private::new(theirs.into())))
    }

    /// Whether the message is gone: answered, or discarded unread. Valid once the sender has closed
    /// its own copy of the passed end.
    pub fn is_closed(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry, which is a local.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLHUP != 0
    }
}

/// Buffer for descriptors and credentials, aligned for cmsg(3).
#[repr(C, align(8))]
struct Control([u8; 128]);

impl ControlSocket {
    /// Binds a socket to a name; EADDRINUSE if another socket has it.
    pub fn bind(space: &Space, name: &str) -> io::Result<Self> {
        let socket = socket()?;
        let (address, len) = space.address(name)?;
        let on: libc::c_int = 1;
        let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
        let fd = socket.as_raw_fd();
        // SAFETY: the option's value is a local.
        let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const on).cast(), size) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the address is a local.
        if unsafe { libc::bind(fd, (&raw const address).cast(), len) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket, space: space.clone(), name: name.to_owned() })
    }

    /// The socket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a message with at most [`MOST_DESCRIPTORS`] descriptors. `WouldBlock` if there is no
    /// room for it now.
    pub fn send(&self, to: &str, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (mut address, len) = self.space.address(to)?;
        let mut chunk = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = Control([0; 128]);
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = len;
        message.msg_iov = &mut chunk;
        message.msg_iovlen = 1;
        if descriptors.len() > MOST_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if !descriptors.is_empty() {
            let size = u32::try_from(size_of_val(descriptors)).unwrap_or(0);
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: pure arithmetic.
            message.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as usize;
            // SAFETY: the header names a buffer of ours with room for one ancillary message.
            let first = unsafe { libc::CMSG_FIRSTHDR(&message) };
            // SAFETY: that is the first ancillary message's header.
            let header = unsafe { &mut *first };
            header.cmsg_level = libc::SOL_SOCKET;
            header.cmsg_type = libc::SCM_RIGHTS;
            // SAFETY: pure arithmetic.
            header.cmsg_len = unsafe { libc::CMSG_LEN(size) } as usize;
            // SAFETY: the data of the ancillary message lies after its header, within the buffer.
            let data = unsafe { libc::CMSG_DATA(first) }.cast::<RawFd>();
            for (at, descriptor) in descriptors.iter().enumerate() {
                // SAFETY: there is room for all descriptors; alignment is not guaranteed.
                unsafe { data.wrapping_add(at).write_unaligned(descriptor.as_raw_fd()) };
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header names locals and the caller's slice.
        let sent = unsafe { uncancelled::sendmsg(self.socket.as_raw_fd(), &message, flags) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Too many descriptors are in flight: treat it like a full socket.
        let full = error.raw_os_error() == Some(libc::ETOOMANYREFS);
        Err(if full { io::ErrorKind::WouldBlock.into() } else { error })
    }

    /// Whether a datagram waits to be received.
    pub fn has_datagram(&self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes nothing into no bytes.
        unsafe { uncancelled::recv(self.as_raw_fd(), core::ptr::null_mut(), 0, flags) >= 0 }
    }

    /// Receives a message; one that is longer than `bytes` is truncated.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<ControlDatagram> {
        // SAFETY: an all-zero address is a valid one.
        let mut address: libc::sockaddr_un = unsafe { zeroed() };
        let mut chunk = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = Control([0; 128]);
        // SAFETY: an all-zero message header is a valid empty one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).unwrap_or(0);
        message.msg_iov = &mut chunk;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header names locals and the caller's slice.
        let got = unsafe { uncancelled::recvmsg(self.socket.as_raw_fd(), &mut message, flags) };
        let len = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let (mut credentials, mut descriptors) = (None, Vec::new());
        // SAFETY: the system filled the header, which names a local.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(&message) };
        // SAFETY: null, or a header within the local buffer.
        while let Some(header) = unsafe { at.as_ref() } {
            // SAFETY: the data lies after the header.
            let data = unsafe { libc::CMSG_DATA(at) };
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    // SAFETY: pure arithmetic.
                    let count = (header.cmsg_len - unsafe { libc::CMSG_LEN(0) } as usize) / size_of::<RawFd>();
                    for index in 0..count {
                        let place = data.cast::<RawFd>().wrapping_add(index);
                        // SAFETY: the system wrote `count` descriptors there.
                        let fd = unsafe { place.read_unaligned() };
                        // SAFETY: the descriptor is fresh and owned by nothing else.
                        descriptors.push(Private::new(unsafe { OwnedFd::from_raw_fd(fd) }));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    // SAFETY: the system wrote credentials there.
                    let of = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                    credentials = Some((of.uid, of.pid));
                }
                _ => {}
            }
            // SAFETY: the header is the system's, `at` one of its messages.
            at = unsafe { libc::CMSG_NXTHDR(&message, at) };
        }
        if message.msg_flags & libc::MSG_CTRUNC != 0 {
            // The descriptor limit truncated them: the rest are of no use.
            descriptors.clear();
        }
        let path = (message.msg_namelen as usize).saturating_sub(offset_of!(libc::sockaddr_un, sun_path));
        let path: Vec<u8> = address.sun_path.iter().take(path).map(|byte| byte.cast_unsigned()).collect();
        Ok(ControlDatagram { len, from: self.space.name(&path), credentials, descriptors })
    }
}

impl AsRawFd for ControlSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Space::Folder(_) = &self.space {
            let path = self.space.path(&self.name);
            // Another process may have swept it.
            drop(std::fs::remove_file(std::ffi::OsStr::from_bytes(&path)));
        }
    }
}

/// The effective user id of this process.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn name() -> String {
        format!("fi_shm://test-{:016x}", u64::from_ne_bytes(crate::random()))
    }

    fn pass_messages(space: &Space) {
        let (a, b) = (ControlSocket::bind(space, &name()).unwrap(), ControlSocket::bind(space, &name()).unwrap());
        assert_eq!(ControlSocket::bind(space, a.name()).unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        a.send(b.name(), b"hello", &[file.as_fd()]).unwrap();
        a.send(b.name(), b"again", &[]).unwrap();
        let mut bytes = [0; 16];
        let datagram = b.receive(&mut bytes).unwrap();
        assert_eq!((&bytes[..datagram.len], datagram.from.as_deref()), (&b"hello"[..], Some(a.name())));
        assert_eq!(datagram.credentials, Some((user(), i32::try_from(std::process::id()).unwrap())));
        assert_eq!(datagram.descriptors.len(), 1);
        assert!(b.receive(&mut bytes).unwrap().descriptors.is_empty());
        assert_eq!(b.receive(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let gone = b.name().to_owned();
        let probe = Probe::new(space);
        assert!(probe.finds(&gone).unwrap());
        drop(b);
        assert!(!probe.finds(&gone).unwrap());
        assert!(a.send(&gone, b"?", &[]).is_err());
    }

    #[test]
    fn a_liveness_pipe_closes_once_no_process_holds_the_message() {
        let _pause = crate::spawning::pause();
        let space = Space::default();
        let name = |what| format!("fi_shm://liveness-{what}-{}", std::process::id());
        let (a, b) =
            (ControlSocket::bind(&space, &name("a")).unwrap(), ControlSocket::bind(&space, &name("b")).unwrap());
        let post = || {
            let (liveness, theirs) = LivenessPipe::new().unwrap();
            a.send(b.name(), b"?", &[theirs.as_fd()]).unwrap();
            liveness
        };
        let (read, unread) = (post(), post());
        let datagram = b.receive(&mut [0; 8]).unwrap();
        assert!(!read.is_closed() && !unread.is_closed());
        drop(datagram);
        assert!(read.is_closed() && !unread.is_closed());
        drop(b);
        assert!(unread.is_closed());
    }

    #[test]
    fn messages_and_descriptors_pass() {
        let _pause = crate::spawning::pause();
        pass_messages(&Space::Abstract);
        let folder = std::env::temp_dir().join(format!("ofi-{:016x}", u64::from_ne_bytes(crate::random())));
        std::fs::create_dir(&folder).unwrap();
        let space = Space::Folder(folder.clone());
        pass_messages(&space);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "files stay behind");
        // A name whose owner ended without removing it.
        let left = ControlSocket::bind(&space, &name()).unwrap();
        let kept = ControlSocket::bind(&space, &name()).unwrap();
        let ControlSocket { socket, .. } = &*core::mem::ManuallyDrop::new(left);
        // SAFETY: the descriptor is not used again, and its owner is never dropped.
        unsafe { libc::close(socket.as_raw_fd()) };
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        space.sweep();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        drop(kept);
        std::fs::remove_dir(&folder).unwrap();
    }
}
