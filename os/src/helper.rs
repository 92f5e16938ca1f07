//! Runs a helper program beside any application, which does not notice it: no fork handlers run, no
//! memory is copied, and the helper is a child of a process in between. That one executes nothing,
//! so it keeps its termination signal, none: wait(2) and SIGCHLD pass it over (clone(2), __WCLONE).
//! After an execve(2) it would be an ordinary child.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_long, c_void};
use std::ffi::CString;
use std::io;
use std::time::Duration;

unsafe extern "C" {
    static environ: *const *const c_char;
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// PTHREAD_CANCEL_DISABLE.
const CANCEL_DISABLE: c_int = 1;
/// The signals of Linux.
const SIGNALS: core::ops::RangeInclusive<c_int> = 1..=64;

/// What the process in between needs: it shares the application's memory, and may neither allocate
/// nor lock.
struct Plan {
    program: *const c_char,
    arguments: *const *const c_char,
    /// The application.
    parent: libc::pid_t,
    /// The end of a stack for the helper's start.
    stack: *mut c_void,
    /// Milliseconds without output after which the helper is killed.
    limit: c_int,
    room: *mut u8,
    room_len: usize,
    /// The pipe to the helper.
    input: c_int,
    output: c_int,
    /// Bytes of the output.
    len: usize,
    /// The error that kept the helper from starting.
    failed: c_int,
    /// The error that ended it early.
    cut: c_int,
}

/// Bytes of a child's stack, which needs a few hundred.
const STACK: usize = 64 << 10;
/// Bytes that a helper may print.
const ROOM: usize = 256 << 10;

/// What a helper prints.
#[derive(Debug)]
pub struct Output {
    /// Its output up to its end or to the line "end".
    pub text: String,
    /// Why it was killed before: ETIMEDOUT, or EMSGSIZE after more than 256 KiB.
    pub cut: Option<io::Error>,
}

/// Runs a program with these arguments, the name that it sees first, and returns what it prints up
/// to its end or to the line "end". It inherits the environment, and nothing else: no descriptors,
/// no signal mask, no ignored signals, no core dumps, no process group. It reads nothing, and its
/// errors are discarded. It is killed after `limit` without output, and when this process ends.
///
/// The calling thread sleeps meanwhile: signals reach it when the helper has ended.
///
/// # Errors
/// EINVAL for a text with NUL; the error that kept the program from starting.
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> io::Result<Output> {
    let text = |text: &str| CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let program = text(program)?;
    let arguments = arguments.iter().map(|argument| text(argument)).collect::<io::Result<Vec<_>>>()?;
    let mut list: Vec<*const c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    list.push(core::ptr::null());
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let mut room = vec![0; ROOM];
    let mut plan = Plan {
        program: program.as_ptr(),
        arguments: list.as_ptr(),
        parent: libc::pid_t::try_from(std::process::id()).unwrap_or(0),
        stack: stack.as_mut_ptr_range().end.cast(),
        limit: c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX),
        room: room.as_mut_ptr(),
        room_len: room.len(),
        input: -1,
        output: -1,
        len: 0,
        failed: libc::EIO,
        cut: 0,
    };
    let mut cancel = 0;
    // A cancellation would unwind this thread, or the process in between, which has its identity.
    // SAFETY: a place for the old state.
    unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut cancel) };
    let done = start(&mut plan);
    // SAFETY: the state from above.
    unsafe { pthread_setcancelstate(cancel, core::ptr::null_mut()) };
    done?;
    if plan.failed != 0 {
        return Err(io::Error::from_raw_os_error(plan.failed));
    }
    room.truncate(plan.len);
    let cut = (plan.cut != 0).then(|| io::Error::from_raw_os_error(plan.cut));
    Ok(Output { text: String::from_utf8_lossy(&room).into_owned(), cut })
}

fn error() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Runs the process in between to its end.
fn start(plan: &mut Plan) -> io::Result<()> {
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
    // SAFETY: the child has a stack of its own, and this thread sleeps until the child has ended,
    // so that plan and stacks outlive the child's use of them.
    let pid = unsafe { libc::clone(stand_between, top, flags, core::ptr::from_mut(plan).cast()) };
    let result = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    if pid > 0 {
        reap(pid);
    }
    // SAFETY: the set was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut()) };
    result
}

/// Waits for the end of a child of this process.
fn reap(pid: libc::pid_t) {
    // SAFETY: no status is wanted.
    while unsafe { libc::waitpid(pid, core::ptr::null_mut(), libc::__WALL) } < 0 && error() == libc::EINTR {}
}

/// The process in between: starts the helper, reads its output, and ends it.
extern "C" fn stand_between(plan: *mut c_void) -> c_int {
    // SAFETY: the application passes its plan and sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    plan.failed = end_with(plan.parent).and_then(|()| prepare(plan)).err().unwrap_or(0);
    if plan.failed == 0 {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK;
        let stack = plan.stack;
        // SAFETY: the child has a stack of its own, and this process sleeps until the child has
        // executed its program or ended.
        let pid = unsafe { libc::clone(execute, stack, flags, core::ptr::from_mut(plan).cast()) };
        if pid < 0 {
            plan.failed = error();
        } else {
            // SAFETY: this process's own descriptor; the helper has a copy.
            unsafe { libc::close(plan.output) };
            if plan.failed == 0 {
                plan.cut = read_to_end(plan).err().unwrap_or(0);
            }
            // SAFETY: the process is this one's own child, which is not waited for yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            reap(pid);
        }
    }
    // SAFETY: nothing of the application's is flushed or freed.
    unsafe { libc::_exit(0) }
}

/// Has the kernel kill this process when its parent ends.
fn end_with(parent: libc::pid_t) -> Result<(), c_int> {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A parent that ended before is noticed here.
    // SAFETY: it takes no arguments.
    if unsafe { libc::getppid() } == parent { Ok(()) } else { Err(libc::ESRCH) }
}

/// Gives up what is the application's, except its memory: handlers and descriptors, of which this
/// process has copies.
fn prepare(plan: &mut Plan) -> Result<(), c_int> {
    // The kernel's structure: the default handler, no flags, no restorer, an empty mask. The C
    // library refuses to set the signals that it keeps for itself.
    let default = [0u64; 4];
    for signal in SIGNALS {
        // SAFETY: the action is filled, and the old one is not wanted.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, c_long::from(signal), default.as_ptr(), 0usize, 8usize) };
    }
    close_from_zero();
    // SAFETY: the path ends with NUL.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    if null != 0 {
        return Err(error());
    }
    for to in [1, 2] {
        // SAFETY: this process's own descriptors.
        if unsafe { libc::dup2(null, to) } < 0 {
            return Err(error());
        }
    }
    let mut ends = [-1; 2];
    // SAFETY: a place for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(error());
    }
    [plan.input, plan.output] = ends;
    Ok(())
}

/// Closes all descriptors of this process, which has its own table.
fn close_from_zero() {
    // SAFETY: numbers only.
    if unsafe { libc::syscall(libc::SYS_close_range, 0usize, c_long::from(u32::MAX), 0usize) } == 0 {
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    for fd in 0..c_int::try_from(limit.rlim_cur.min(1 << 20)).unwrap_or(1 << 20) {
        // SAFETY: this process's own descriptor, or none.
        unsafe { libc::close(fd) };
    }
}

/// The helper, until it executes its program.
extern "C" fn execute(plan: *mut c_void) -> c_int {
    // SAFETY: the process in between passes the plan and sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan>() };
    // SAFETY: numbers only: the process in between lives until it has killed this one.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // A file that kills its process group ends only itself.
    // SAFETY: numbers only.
    unsafe { libc::setpgid(0, 0) };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is filled.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    // SAFETY: the child has its own table of descriptors.
    unsafe { libc::dup2(plan.output, 1) };
    let mut empty = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a place for a set.
    unsafe { libc::sigemptyset(empty.as_mut_ptr()) };
    // All handlers are the default by now.
    // SAFETY: the set is filled, and the old one is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, empty.as_ptr(), core::ptr::null_mut()) };
    // SAFETY: the texts end with NUL and the lists with null; the environment is the application's.
    unsafe { libc::execve(plan.program, plan.arguments, environ) };
    plan.failed = error();
    // SAFETY: nothing of the application's is flushed or freed.
    unsafe { libc::_exit(127) }
}

/// Reads up to the helper's end or to the line "end".
fn read_to_end(plan: &mut Plan) -> Result<(), c_int> {
    // SAFETY: the application lends this room and sleeps.
    let room = unsafe { core::slice::from_raw_parts_mut(plan.room, plan.room_len) };
    loop {
        if plan.len == room.len() {
            return Err(libc::EMSGSIZE);
        }
        let mut waiting = libc::pollfd { fd: plan.input, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        match unsafe { libc::poll(&mut waiting, 1, plan.limit) } {
            0 => return Err(libc::ETIMEDOUT),
            count if count < 0 && error() == libc::EINTR => continue,
            count if count < 0 => return Err(error()),
            _ => {}
        }
        let free = &mut room[plan.len..];
        // SAFETY: the length is that of the place.
        let count = unsafe { libc::read(plan.input, free.as_mut_ptr().cast(), free.len()) };
        plan.len += usize::try_from(count).map_err(|_| error())?;
        let text = &room[..plan.len];
        if count == 0 || text == b"end\n" || text.ends_with(b"\nend\n") {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// The whole output of a shell script.
    fn output(script: &str) -> String {
        let Output { text, cut } = run("/bin/sh", &["sh", "-c", script], LONG).unwrap();
        assert!(cut.is_none(), "{cut:?}");
        text
    }

    #[test]
    fn a_helper_answers_ends_or_is_killed() {
        let _quiet = crate::spawning::pause();
        assert_eq!(output("echo one; echo two"), "one\ntwo\n");
        // What follows the line "end" is not waited for.
        assert_eq!(output("echo end; sleep 60"), "end\n");
        // What a helper that is late has printed is kept.
        let late = run("/bin/sh", &["sh", "-c", "echo one; sleep 60"], Duration::from_millis(500)).unwrap();
        assert_eq!(late.cut.and_then(|cut| cut.raw_os_error()), Some(libc::ETIMEDOUT));
        assert_eq!(late.text, "one\n");
        let long = run("/bin/sh", &["sh", "-c", "while :; do echo 0123456789; done"], LONG).unwrap();
        assert_eq!((long.cut.and_then(|cut| cut.raw_os_error()), long.text.len()), (Some(libc::EMSGSIZE), ROOM));
        assert_eq!(run("/no/such/program", &["x"], LONG).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(run("a\0b", &[], LONG).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_helper_leaves_no_child_behind() {
        run("/bin/true", &["true"], LONG).unwrap();
        // Of this thread: other tests have children, too, and wait for them themselves.
        let any = libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: no status is wanted, and without a child nothing happens.
        let found = unsafe { libc::waitpid(-1, core::ptr::null_mut(), any) };
        assert_eq!((found, error()), (-1, libc::ECHILD));
    }

    #[test]
    fn a_helper_inherits_nothing_but_the_environment() {
        use std::os::fd::AsRawFd;
        let _quiet = crate::spawning::pause();
        let file = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: it changes a flag of a descriptor.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        // The runtime of Rust ignores SIGPIPE, so there is something to inherit.
        let status = output(
            "while read -r name value; do case $name in Sig[BI]*) echo $name $value;; esac; done \
                             < /proc/self/status",
        );
        assert_eq!(status, "SigBlk: 0000000000000000\nSigIgn: 0000000000000000\n");
        let open = output("for fd in /proc/$$/fd/*; do readlink $fd; done; ulimit -c");
        assert!(!open.contains("/dev/zero"), "{open}");
        assert!(open.starts_with("/dev/null\npipe:") && open.ends_with("\n0\n"), "{open}");
        assert_eq!(open.lines().filter(|line| line.starts_with("pipe:")).count(), 1, "{open}");
    }
}
