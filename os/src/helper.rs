//! Runs a helper program beside any application: no fork handlers run, and no memory is copied.
//! execve(2) makes the helper an ordinary child, so an application that waits for any child may
//! see it, and gets a SIGCHLD at its end.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// What the child of a clone(2) needs: it shares the parent's memory, and may neither allocate nor
/// lock.
struct Plan {
    program: *const c_char,
    arguments: *const *const c_char,
    output: RawFd,
    failed: c_int,
}

/// Bytes of the child's stack, which needs a few hundred.
const STACK: usize = 64 << 10;

/// Runs a program with these arguments, the name that it sees first, and returns what it prints up
/// to its end or to the line "end". It inherits the environment, and a signal mask that blocks
/// everything; it reads nothing, and its errors are discarded. Kills it after `limit` without
/// output.
///
/// # Errors
/// EINVAL for a text with NUL; ETIMEDOUT if the program was killed; the error that kept it from
/// starting.
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> io::Result<String> {
    let text = |text: &str| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let program = text(program)?;
    let arguments = arguments.iter().map(|argument| text(argument)).collect::<io::Result<Vec<_>>>()?;
    let mut list: Vec<*const c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    list.push(core::ptr::null());
    let (input, output) = io::pipe()?;
    let mut plan = Plan { program: program.as_ptr(), arguments: list.as_ptr(), output: output.as_raw_fd(), failed: 0 };
    let pid = start(&mut plan)?;
    drop(output);
    let read = if plan.failed == 0 {
        read_to_end(&File::from(OwnedFd::from(input)), limit)
    } else {
        Err(io::Error::from_raw_os_error(plan.failed))
    };
    // SAFETY: the process is this function's own child, which is not waited for yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above; no status is wanted.
    while unsafe { libc::waitpid(pid, core::ptr::null_mut(), libc::__WALL) } < 0 && is_interrupted() {}
    read
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Starts the child, and returns when it has executed its program or failed.
fn start(plan: &mut Plan) -> io::Result<libc::pid_t> {
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a place for a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // The child must not run the application's handlers on the application's memory.
    // SAFETY: the set is filled, and there is a place for the old one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: the child has a stack of its own, and this thread sleeps until the child has executed
    // its program or ended, so that plan and stack outlive the child's use of them.
    let pid = unsafe { libc::clone(execute, top, flags, core::ptr::from_mut(plan).cast()) };
    let result = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    // SAFETY: the set was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    result
}

extern "C" fn execute(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passes its plan and sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: the path ends with NUL.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for (from, to) in [(plan.output, 1), (null, 0), (null, 2)] {
        // SAFETY: the child has its own table of descriptors.
        unsafe { libc::dup2(from, to) };
    }
    // A pipe that already had this number would be closed.
    // SAFETY: it changes a flag of a descriptor.
    unsafe { libc::fcntl(1, libc::F_SETFD, 0) };
    // SAFETY: the texts end with NUL and the lists with null; the environment is the application's.
    unsafe { libc::execve(plan.program, plan.arguments, environ) };
    plan.failed = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: nothing of the parent's is flushed or freed.
    unsafe { libc::_exit(127) }
}

fn read_to_end(input: &File, limit: Duration) -> io::Result<String> {
    let mut text = Vec::new();
    let milliseconds = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
    loop {
        let mut waiting = libc::pollfd { fd: input.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        match unsafe { libc::poll(&mut waiting, 1, milliseconds) } {
            0 => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            count if count < 0 && is_interrupted() => continue,
            count if count < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
        let mut buffer = [0; 4096];
        let count = io::Read::read(&mut &*input, &mut buffer)?;
        text.extend_from_slice(&buffer[..count]);
        if count == 0 || text == b"end\n" || text.ends_with(b"\nend\n") {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_helper_answers_ends_or_is_killed() {
        let _quiet = crate::spawning::pause();
        assert_eq!(run("/bin/sh", &["sh", "-c", "echo one; echo $1", "-", "two"], LONG).unwrap(), "one\ntwo\n");
        // What follows the line "end" is not waited for.
        assert_eq!(run("/bin/sh", &["sh", "-c", "echo end; sleep 60"], LONG).unwrap(), "end\n");
        let error = run("/bin/sh", &["sh", "-c", "sleep 60"], Duration::from_millis(10)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        assert_eq!(run("/no/such/program", &["x"], LONG).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(run("a\0b", &[], LONG).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_helper_leaves_no_child_behind() {
        let _quiet = crate::spawning::pause();
        run("/bin/true", &["true"], LONG).unwrap();
        // SAFETY: no status is wanted, and without a child nothing happens.
        let found = unsafe { libc::waitpid(-1, core::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
        assert!(found <= 0);
    }
}
