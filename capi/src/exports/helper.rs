//! This library as a program: the system's loader can run it by its entry point. In such a process
//! new files of providers are tried, and tools learn about loaded providers.

use crate::exports::report;
use core::ffi::{CStr, c_char};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// The loader jumps here with the number of arguments and the arguments on the stack.
core::arch::global_asm!(
    ".globl ofi_helper",
    ".hidden ofi_helper",
    ".type ofi_helper,@function",
    "ofi_helper:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {run}",
    "ud2",
    run = sym run,
);

/// Runs the command that the arguments name, and ends the process.
unsafe extern "C" fn run(stack: *const usize) -> ! {
    // SAFETY: the number of arguments comes first on the stack.
    let count = unsafe { *stack };
    let arguments: Vec<&CStr> = (1..=count)
        .map(|index| {
            // SAFETY: as many pointers follow.
            let text = unsafe { *stack.wrapping_add(index).cast::<*const c_char>() };
            // SAFETY: an argument ends with NUL, and lives as long as the process.
            unsafe { CStr::from_ptr(text) }
        })
        .collect();
    unblock_signals();
    let code = match arguments.get(1).map(|command| command.to_bytes()) {
        Some(b"try") => {
            let files: Vec<&Path> =
                arguments[2..].iter().map(|file| Path::new(OsStr::from_bytes(file.to_bytes()))).collect();
            ofi_loader::serve(&files);
            0
        }
        Some(b"report") => {
            report::print(&arguments[2..]);
            0
        }
        _ => {
            println!("libfabric {} by ofi: a library, which programs link", ofi_core::Version::API);
            1
        }
    };
    // SAFETY: it ends the process, without handlers of the files that were loaded.
    unsafe { libc::_exit(code) }
}

/// The process begins with the signal mask of the thread that started it, which blocks everything.
fn unblock_signals() {
    let mut none = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a place for a set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is filled, and the old one is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), core::ptr::null_mut()) };
}
