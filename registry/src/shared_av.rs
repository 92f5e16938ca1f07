//! Address vectors that the processes of a user share by name (fi_av(3)): the engine's table of
//! addresses in named memory of the system.

use core::ops::Range;
use ofi_core::error::{Error, Result};
use ofi_core::{AddrFormat, Errno};
use ofi_engine::AddressVector;
use ofi_engine::av::shared::{HEAD, SharedMemory, initialize, words_for};
use ofi_os::named::{Access, Layout, NamedMemory};
use ofi_sync::primitive::AtomicU64;

/// The most addresses of a shared address vector. Address space for all of them is reserved, 400
/// MiB; memory is allocated as they come.
const CAPACITY: usize = 1 << 22;

/// Opens the address vector of that name in a domain; without `read_only` it is made if no process
/// has it open.
///
/// # Errors
/// ENOENT if it is to be read and no process has it open, EACCES if its file is another user's,
/// EINVAL if another version of this library made it, or errors of the system.
pub fn open_shared_av(domain: &str, format: AddrFormat, name: &str, read_only: bool) -> Result<AddressVector> {
    let doing = || format!("open the shared address vector {name} of domain {domain}");
    let seed = u64::from_ne_bytes(ofi_os::random());
    let layout = Layout { words: words_for(CAPACITY), head: HEAD };
    // Addresses of different formats do not fit into one address vector.
    let format = format.0.to_string();
    let access = if read_only { Access::Read } else { Access::Write };
    let begin = |words: &[AtomicU64]| initialize(words, seed);
    let memory = NamedMemory::open("av", &[domain, &format, name], access, &layout, begin);
    let memory = memory.map_err(|error| Error::os(error, doing()))?;
    AddressVector::shared(Box::new(Named(memory)), CAPACITY).map_err(|errno| Error::new(errno, doing()))
}

#[derive(Debug)]
struct Named(NamedMemory);

impl SharedMemory for Named {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn is_writable(&self) -> bool {
        self.0.access() == Access::Write
    }

    fn exclusively(&self, change: &mut dyn FnMut()) -> Result<(), Errno> {
        let _writing = self.0.write()?;
        change();
        Ok(())
    }

    fn provide(&self, words: Range<usize>) -> Result<(), Errno> {
        self.0.allocate(words).map_err(|error| match Errno::from(error) {
            // The file system is memory.
            Errno::ENOSPC => Errno::ENOMEM,
            errno => errno,
        })
    }
}
