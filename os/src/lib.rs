//! The operating system: sockets, waiting, interfaces, names, time. Functions return values or
//! errors with a cause; no code here knows of endpoints.
#![deny(unsafe_code)]

pub mod broadcaster;
pub mod clock;
pub mod control_socket;
pub mod datagram;
pub mod descriptor;
pub mod dylib;
pub mod exit;
pub mod fallible;
pub mod helper;
pub mod infiniband;
pub mod limits;
pub mod mappings;
pub mod membarrier;
pub mod mutex_cond;
pub mod named;
pub mod netif;
pub mod poller;
pub mod process;
pub mod published;
pub mod resolve;
pub mod shm;
pub mod shortage;
pub mod socket;
#[cfg(test)]
mod spawning;
pub mod thread;
mod uncancelled;
pub mod unmapped;
pub mod wait_fd;

/// Unpredictable bytes, from getrandom(2).
pub fn random<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    // Linux has getrandom(2) since 3.17. Without it nonces would be guessable, so panic.
    getrandom::fill(&mut out).expect("the system has random numbers");
    out
}
