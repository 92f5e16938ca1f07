//! Threads of the library: named, with all signals blocked. They use pthreads directly because std
//! aborts the process when it lacks memory for a thread.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use ofi_core::error::{Error, Result};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Stack size in bytes.
const STACK: usize = 2 << 20;

/// A thread; dropping the handle does not stop it.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

struct Start<F> {
    name: &'static CStr,
    life: F,
}

extern "C" fn run<F: FnOnce() + Send + 'static>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made it by `Box::into_raw` for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start<F>>()) };
    let Start { name, life } = *start;
    // SAFETY: the call takes nothing and cannot fail.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: the name ends with NUL. The system rejects one that is too long.
    unsafe { libc::pthread_setname_np(this, name.as_ptr()) };
    // The panic hook has reported a panic; no foreign frames lie between it and here.
    drop(catch_unwind(AssertUnwindSafe(life)));
    core::ptr::null_mut()
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Starts a thread with all signals blocked: they belong to the application's threads. The name has
/// at most 15 bytes.
///
/// # Errors
/// EAGAIN if the system lacks the resources.
pub fn spawn<F: FnOnce() + Send + 'static>(name: &'static CStr, life: F) -> Result<Thread> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` is a place for a signal set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` has been filled, `before` is a place for the old set. The new thread inherits
    // the mask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let thread = create(name, life);
    // SAFETY: `before` has been filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    thread.map_err(|error| Error::os(error, "start a thread"))
}

fn create<F: FnOnce() + Send + 'static>(name: &'static CStr, life: F) -> io::Result<Thread> {
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `attr` is a place for attributes.
    check(unsafe { libc::pthread_attr_init(attr.as_mut_ptr()) })?;
    // SAFETY: `attr` has been filled. If the system rejects the size, its default stays.
    unsafe { libc::pthread_attr_setstacksize(attr.as_mut_ptr(), STACK) };
    let start = Box::into_raw(Box::new(Start { name, life }));
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: `thread` is a place for the result, `attr` has been filled, and `run` takes what
    // `start` points to.
    let created = check(unsafe { libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), run::<F>, start.cast()) });
    // SAFETY: `attr` has been filled, and is not used again.
    unsafe { libc::pthread_attr_destroy(attr.as_mut_ptr()) };
    if let Err(error) = created {
        // SAFETY: no thread was created, so `start` is still ours.
        drop(unsafe { Box::from_raw(start) });
        return Err(error);
    }
    // SAFETY: a thread was created, so its number was written.
    Ok(Thread(unsafe { thread.assume_init() }))
}

/// A set of CPUs, by their numbers.
#[derive(Clone, Copy)]
pub struct Cpus(libc::cpu_set_t);

/// How many CPUs a set can name.
pub(crate) const MOST_CPUS: usize = libc::CPU_SETSIZE as usize;

impl Cpus {
    /// The empty set.
    pub fn none() -> Self {
        // SAFETY: all zeros is the empty set.
        Self(unsafe { core::mem::zeroed() })
    }

    /// Adds a CPU, unless its number is too large for a set.
    pub fn add(&mut self, cpu: usize) {
        if cpu < MOST_CPUS {
            // SAFETY: the number is within the set.
            unsafe { libc::CPU_SET(cpu, &mut self.0) };
        }
    }

    /// Whether there is no CPU in it.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The CPU with the lowest number.
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        // SAFETY: the number is within the set.
        (0..MOST_CPUS).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &self.0) })
    }
}

impl PartialEq for Cpus {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Thread {
    /// The CPUs on which the thread may run; none if the system does not report them.
    pub fn cpus(&self) -> Cpus {
        let mut cpus = Cpus::none();
        // SAFETY: the thread has not been joined, and `cpus` has room for a set.
        unsafe { libc::pthread_getaffinity_np(self.0, size_of::<libc::cpu_set_t>(), &mut cpus.0) };
        cpus
    }

    /// Makes the thread run on those of these CPUs that exist; if none does, nothing changes, and
    /// this returns false.
    pub fn run_on(&self, cpus: &Cpus) -> bool {
        // SAFETY: the thread has not been joined, and `cpus` is a set.
        unsafe { libc::pthread_setaffinity_np(self.0, size_of::<libc::cpu_set_t>(), &cpus.0) == 0 }
    }

    /// Waits for the thread to end.
    pub fn join(self) {
        // SAFETY: the thread was created joinable, and this value is the only one that joins it.
        unsafe { libc::pthread_join(self.0, core::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_has_its_name_and_is_joined() {
        let (said, heard) = channel();
        let thread = spawn(c"ofi-test", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            said.send(name).unwrap();
        });
        thread.unwrap().join();
        assert_eq!(heard.recv().unwrap().trim(), "ofi-test");
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        spawn(c"ofi-test", || panic!("as the test wants")).unwrap().join();
    }
}
