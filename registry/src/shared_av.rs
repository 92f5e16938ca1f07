//! Address vectors that the processes of a user share by name (fi_av(3)): the engine's table of
//! addresses in named memory of the system.

use core::ops::Range;
use ofi_core::error::{Error, Result};
use ofi_core::log::{self, Level, Subsystem};
use ofi_core::{AddrFormat, Errno};
use ofi_engine::AddressVector;
use ofi_engine::av::shared::{HEAD, SharedMemory, initialize, words_for};
use ofi_os::named::{Access, Layout, NamedMemory};
use ofi_sync::primitive::real::AtomicU64;

/// The most addresses of a shared address vector. Address space for all of them is reserved, 400
/// MiB; memory is allocated as they come.
const CAPACITY: usize = 1 << 22;

/// Opens the address vector of that name in a domain of a provider; without `read_only` it is made
/// if no process has it open.
///
/// # Errors
/// ENOENT if it is to be read and no process has it open, EACCES if its file is another user's,
/// EINVAL if another version of this library made it, or errors of the system.
pub fn open_shared_av(
    (provider, domain): (&str, &str),
    format: AddrFormat,
    name: &str,
    read_only: bool,
) -> Result<AddressVector> {
    let doing = || format!("open the shared address vector {name} of {provider}'s domain {domain}");
    let seed = u64::from_ne_bytes(ofi_os::random());
    let layout = Layout { words: words_for(CAPACITY), head: HEAD };
    // Addresses of different formats do not fit into one address vector, and those of another
    // provider lead to none of this one's endpoints.
    let format = format.0.to_string();
    let access = if read_only { Access::Read } else { Access::Write };
    let begin = |words: &[AtomicU64]| initialize(words, seed);
    let memory = NamedMemory::open("av", &[provider, domain, &format, name], access, &layout, begin);
    let memory = memory.map_err(|error| Error::os(error, doing()))?;
    let memory = Named { memory, name: name.to_owned() };
    AddressVector::shared(Box::new(memory), CAPACITY).map_err(|errno| Error::new(errno, doing()))
}

#[derive(Debug)]
struct Named {
    memory: NamedMemory,
    name: String,
}

impl Named {
    /// Logs why it cannot be changed.
    #[cold]
    fn refused(&self, errno: Errno) -> Errno {
        log::log("", Level::Warn, Subsystem::Av, || {
            let why = match errno {
                Errno::AGAIN => ": a process that changes it is stopped",
                Errno::ESTALE => ", whose file in /dev/shm was removed: all processes must close it and open it again",
                _ => "",
            };
            Error::new(errno, format!("change the shared address vector {}{why}", self.name)).to_string()
        });
        errno
    }
}

impl SharedMemory for Named {
    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn is_writable(&self) -> bool {
        self.memory.access() == Access::Write
    }

    fn with_write_lock(&self, change: &mut dyn FnMut()) -> Result<(), Errno> {
        let _writing = self.memory.write().map_err(|error| self.refused(error.into()))?;
        change();
        Ok(())
    }

    fn allocate(&self, words: Range<usize>) -> Result<(), Errno> {
        self.memory.allocate(words).map_err(|error| match Errno::from(error) {
            // The file system is memory.
            Errno::ENOSPC => Errno::ENOMEM,
            errno => errno,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofi_core::{Addr, FiAddr};
    use std::net::SocketAddr;

    #[test]
    fn each_domain_of_each_provider_has_its_own() {
        let name = format!("test-{}", std::process::id());
        let open = |provider, domain| {
            open_shared_av((provider, domain), AddrFormat::SOCKADDR_IN, &name, false).expect("there is memory")
        };
        let addr = |port| Addr::from(SocketAddr::from(([127, 0, 0, 1], port)));
        let all = [("tcp", "eth0"), ("udp", "eth0"), ("tcp", "eth1")].map(|(provider, domain)| open(provider, domain));
        for (av, port) in all.iter().zip(1..) {
            assert_eq!(av.insert(addr(port)), FiAddr(0));
        }
        assert_eq!(open("udp", "eth0").lookup(FiAddr(0)), Some(addr(2)));
    }
}
